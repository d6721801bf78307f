# SPDX-License-Identifier: Apache-2.0
"""Headrace brings images to the accelerator as fast as it can train on them, without losing a bit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace import codec, errors
from headrace.codec import decode, encode, inspect

if TYPE_CHECKING:
    from headrace import samplers, transforms
    from headrace.building import BuildReport, Writer, build
    from headrace.building.growing import add, collect_garbage, drop, log, merge, relabel
    from headrace.loader import Loader, Mixture, patches
    from headrace.planning import plan
    from headrace.profiling import profile
    from headrace.records import Dataset
    from headrace.records import open_dataset as open  # noqa: A004

__all__ = [
    "BuildReport",
    "Dataset",
    "Loader",
    "Mixture",
    "Writer",
    "add",
    "build",
    "codec",
    "collect_garbage",
    "decode",
    "drop",
    "encode",
    "errors",
    "inspect",
    "log",
    "merge",
    "open",
    "patches",
    "plan",
    "profile",
    "relabel",
    "samplers",
    "transforms",
]

__version__ = "0.1.0"

_LAZY: dict[str, tuple[str, str | None]] = {
    "BuildReport": ("headrace.building", "BuildReport"),
    "Dataset": ("headrace.records", "Dataset"),
    "Loader": ("headrace.loader", "Loader"),
    "Mixture": ("headrace.loader", "Mixture"),
    "Writer": ("headrace.building", "Writer"),
    "add": ("headrace.building.growing", "add"),
    "build": ("headrace.building", "build"),
    "collect_garbage": ("headrace.building.growing", "collect_garbage"),
    "drop": ("headrace.building.growing", "drop"),
    "log": ("headrace.building.growing", "log"),
    "merge": ("headrace.building.growing", "merge"),
    "open": ("headrace.records", "open_dataset"),
    "patches": ("headrace.loader", "patches"),
    "plan": ("headrace.planning", "plan"),
    "profile": ("headrace.profiling", "profile"),
    "relabel": ("headrace.building.growing", "relabel"),
    "samplers": ("headrace.samplers", None),
    "transforms": ("headrace.transforms", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    found = import_module(module)
    value = globals()[name] = found if attribute is None else getattr(found, attribute)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
