# SPDX-License-Identifier: Apache-2.0
"""Whether a file's channels beyond gray and RGB are alpha or CMYK, as the file or its format says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace import formats
from headrace.errors import HeadraceError
from headrace.formats import foreign

if TYPE_CHECKING:
    from typing_extensions import Buffer

Extra: TypeAlias = Literal["alpha", "CMYK"]

# By the mode of Pillow, which is also the metadata entry `color` of an `.hri` file.
_MODES: dict[str, Extra] = {"CMYK": "CMYK", "LA": "alpha", "RGBA": "alpha"}
_FORMATS: dict[str, Extra | None] = {"png": "alpha", "webp": "alpha", "jpeg": "CMYK", "raw": None}


def extra_channels(data: Buffer) -> Extra | None:
    """Return whether an image with 2 or 4 channels has alpha or is CMYK; None if the channels may mean anything.

    PNG and WebP can only store alpha, and JPEG only CMYK. An `.hri` file says it in its metadata under `color`; raw
    files do not say it. For other files Pillow's mode says it.
    """
    name = formats.sniff(data)
    if name in _FORMATS:
        return _FORMATS[name]
    if name == "hri":
        return pillow_extra(formats.get(name).metadata(data).get("color", b"").decode("latin-1"))
    try:
        return pillow_extra(foreign.mode(data))
    except HeadraceError:
        return None


def pillow_extra(mode: str) -> Extra | None:
    """Return the same for a mode of Pillow."""
    return _MODES.get(mode)


def color_mark(extra: Extra | None, channels: int) -> dict[str, bytes]:
    """Return the metadata entry that marks these channels in an `.hri` file."""
    if extra == "alpha":
        return {"color": b"LA" if channels == 2 else b"RGBA"}
    return {} if extra is None else {"color": b"CMYK"}
