# SPDX-License-Identifier: Apache-2.0
"""Which library decodes which format.

The core decodes hri, png, raw and, with libjpeg-turbo, jpeg. imagecodecs decodes WebP if it is installed, otherwise
Pillow does: the pixels are the same, the speed is not. Encoding never depends on the choice, so the bytes of a dataset
do not either.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from headrace import _core
from headrace.errors import MissingExtra

_CHOICES = ("auto", "imagecodecs", "pillow")
_choice = "auto"


def backends() -> dict[str, str]:
    """The library that decodes each format in this process."""
    fast = "imagecodecs" if imagecodecs() is not None else "pillow"
    return {"hri": "headrace", "jpeg": _core.jpeg_library(), "png": "headrace", "raw": "numpy", "webp": fast}


def use_backend(name: str) -> None:
    """Choose `"imagecodecs"`, `"pillow"` or `"auto"` for WebP, for the whole process."""
    global _choice  # noqa: PLW0603 - a process-wide choice is what this is
    if name not in _CHOICES:
        raise ValueError(f"a backend is one of {', '.join(map(repr, _CHOICES))}, not {name!r}")
    if name == "imagecodecs" and _load() is None:
        raise MissingExtra("imagecodecs is not installed or lacks WebP; pip install 'headrace[imagecodecs]'")
    _choice = name


def imagecodecs() -> Any | None:
    """The imagecodecs module if it is to be used, else None."""
    return None if _choice == "pillow" else _load()


@functools.cache
def _load() -> Any | None:
    try:
        module = importlib.import_module("imagecodecs")
        # A build from source may lack it; the look-up loads this part of the package.
        usable = module.WEBP.available
    except (ImportError, AttributeError):
        return None
    return module if usable else None
