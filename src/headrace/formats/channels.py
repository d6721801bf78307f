# SPDX-License-Identifier: Apache-2.0
"""What the channels of a file beyond gray and RGB are, where the file or its format says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace import formats
from headrace.errors import HeadraceError
from headrace.formats import foreign

if TYPE_CHECKING:
    from typing_extensions import Buffer

Extra: TypeAlias = Literal["alpha", "CMYK"]

_MARKS: dict[bytes, Extra] = {b"CMYK": "CMYK", b"LA": "alpha", b"RGBA": "alpha"}
_MODES: dict[str, Extra] = {"CMYK": "CMYK", "LA": "alpha", "RGBA": "alpha"}


def extra_channels(data: Buffer) -> Extra | None:
    """Tell whether an image of 2 or 4 channels has alpha or is CMYK; None if it may hold any bands.

    PNG and WebP have no other use for such channels, nor has JPEG. A `.hri` file says it in its metadata, under
    `color`; raw files do not say it. Of other files Pillow knows it.
    """
    name = formats.sniff(data)
    if name in ("png", "webp"):
        return "alpha"
    if name == "jpeg":
        return "CMYK"
    if name == "hri":
        return _MARKS.get(formats.get(name).metadata(data).get("color", b""))
    if name == "raw":
        return None
    try:
        return pillow_extra(foreign.mode(data))
    except HeadraceError:
        return None


def pillow_extra(mode: str) -> Extra | None:
    """The same of an image of Pillow's, by its mode."""
    return _MODES.get(mode)


def color_mark(extra: Extra | None, channels: int) -> dict[str, bytes]:
    """The metadata by which a `.hri` file says it."""
    if extra == "alpha":
        return {"color": b"LA" if channels == 2 else b"RGBA"}
    return {} if extra is None else {"color": b"CMYK"}
