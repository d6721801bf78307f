# SPDX-License-Identifier: Apache-2.0
"""How bytes get from a file to a device here: asked of the machine, never assumed."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

How: TypeAlias = Literal["kvikio", "pinned", "pageable"]


def how(device: Any = None) -> How:
    """Tell by which way a device gets bytes: "kvikio", straight from storage; "pinned", by one copy; or "pageable".

    `device` is PyTorch's; None stands for CUDA if there is any, else for the CPU. Without PyTorch all is pageable.
    """
    if find_spec("torch") is None:
        return "pageable"
    torch = importlib.import_module("torch")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if torch.device(device).type != "cuda":
        return "pageable"
    return "kvikio" if getattr(torch.version, "hip", None) is None and has_direct_storage() else "pinned"


def has_direct_storage() -> bool:
    """Whether kvikio is installed and the driver can read from storage into a device's memory.

    Without the driver kvikio would copy through the host's memory too, with less to say in how; then we do it.
    """
    kvikio = load_kvikio()
    if kvikio is None:
        return False
    try:
        return not _is_compatible_only(kvikio) and _driver_says_yes()
    except (ImportError, AttributeError, KeyError, RuntimeError, ValueError):
        return False  # no libcufile, no driver, or a kvikio of another make


def load_kvikio() -> Any | None:
    """The module, if it is there and can be loaded; its libraries may lack a driver to link with."""
    try:
        return importlib.import_module("kvikio")
    except (ImportError, OSError):
        return None


def _is_compatible_only(kvikio: Any) -> bool:
    """Whether kvikio was told, or has found, that it must do without cuFile."""
    defaults = importlib.import_module("kvikio.defaults")
    # The setting had a function of its own before it had a common one.
    mode = defaults.get("compat_mode") if hasattr(defaults, "get") else defaults.compat_mode()
    modes = getattr(kvikio, "CompatMode", None)
    return bool(mode) if modes is None else mode == modes.ON


def _driver_says_yes() -> bool:
    driver = importlib.import_module("kvikio.cufile_driver")
    driver.driver_open()
    try:
        if hasattr(driver, "get"):
            return bool(driver.get("is_gds_available"))
        return bool(driver.DriverProperties().is_gds_available)
    finally:
        driver.driver_close()
