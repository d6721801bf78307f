# SPDX-License-Identifier: Apache-2.0
"""The base class of all formats, and the types of its interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from headrace.errors import CorruptImage, UnsupportedImage

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

Color: TypeAlias = Literal["keep", "RGB", "index"]
Region: TypeAlias = tuple[int, int, int, int]
Out: TypeAlias = "npt.NDArray[Any] | None"

MAX_PIXELS = 2**30


@dataclass(frozen=True, slots=True)
class ImageShape:
    """Size, channels and dtype of a decoded image, as the header of its file gives them."""

    height: int
    width: int
    channels: int
    dtype: str
    """`"uint8"`, `"uint16"` or `"int16"`."""

    @property
    def array(self) -> tuple[int, ...]:
        """The shape of the decoded array: `(H, W)` for one channel, otherwise `(H, W, C)`."""
        return (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)

    def converted(self, color: Color) -> ImageShape:
        """Return the shape after decoding with a color, for an image without a palette."""
        return replace(self, channels=3) if color == "RGB" and self.channels <= 4 else self


class Format(ABC):
    """A way to store one image as bytes. Stateless, picklable and thread-safe.

    A format implements `probe`, `metadata`, `_decode` and `_encode`.
    """

    name: ClassVar[str]
    lossless: ClassVar[bool]
    """Decoding what `encode` wrote gives exactly the same pixels."""
    suffix: ClassVar[str]
    can_decode_region: ClassVar[bool]
    """Decoding a region costs about its share of the image. Other formats decode the complete image and crop it."""

    @abstractmethod
    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        """Read and check the header. Return what `decode` with the same `color` gives, without decoding pixels."""

    @abstractmethod
    def metadata(self, data: Buffer) -> dict[str, bytes]:
        """Return the `icc`, `exif` and `xmp` blocks of a file, and `color: CMYK` for a JPEG in CMYK."""

    def decode(
        self,
        data: Buffer,
        *,
        color: Color = "keep",
        region: Region | None = None,
        out: npt.NDArray[Any] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> npt.NDArray[Any]:
        """Decode to `[H, W]` or `[H, W, C]`. A region equals the crop of the complete image. Releases the GIL.

        Args:
            data: A complete file. Bytes after its end are ignored where the format allows them.
            color: `"RGB"` gives three channels: gray is repeated, alpha is dropped, and CMYK is converted as Pillow
                does; the bit depth stays. `"keep"` returns the channels as stored, and the colors of a palette.
                `"index"` also returns the channels as stored, but the indices of a palette, which label maps use.
            region: `(top, left, height, width)`.
            out: Array to decode into and return, of the result's shape and dtype. Unspecified contents after an error.
            max_pixels: Raise if the header announces more. Formats that cannot decode a region count the complete
                image.

        Raises:
            CorruptImage: The bytes are damaged, truncated or hostile.
            UnsupportedImage: The file is of a kind that is not supported, such as an animation.
            ImageTooLarge: The image has more than `max_pixels`.

        """
        check_color(color)
        return self._decode(byte_view(data), color, region, out, max_pixels)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        """Encode an image. The bytes depend on the arguments and on library versions only.

        Args:
            image: `[H, W]` or `[H, W, C]`, uint8, uint16 or int16.
            mode: What follows the colon in `hri:fast`, `jpeg:90`, `png:9`; None is the default of the format.
            metadata: `icc`, `exif` and `xmp` blocks as `metadata` returns them. Blocks that the format cannot store
                are dropped.

        Raises:
            UnsupportedImage: The format cannot store this image, or does not have this mode.

        """
        from headrace.codec.images import as_image  # noqa: PLC0415 - loads the extension, which decoders may not need

        image = as_image(image)
        if image.ndim == 3 and image.shape[2] == 1:
            image = image[..., 0]
        return self._encode(image, mode, dict(metadata or {}))

    @abstractmethod
    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]: ...

    @abstractmethod
    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        """Encode an image that `as_image` has checked; one channel is always `[H, W]`."""


def byte_view(data: Buffer) -> memoryview:
    """Return a flat, read-only view of the bytes of a buffer."""
    view = memoryview(data).toreadonly()
    if not view.c_contiguous:
        raise TypeError("encoded bytes must be contiguous in memory; pass bytes(data)")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def check_color(color: Color) -> None:
    if color not in get_args(Color):
        raise ValueError(f"color must be one of {', '.join(map(repr, get_args(Color)))}; got {color!r}")


def parse_mode(name: str, mode: str | None, what: str, limits: tuple[int, int], default: int) -> int:
    """Return the number that is the mode of a format, such as 6 for `png:6`."""
    if mode is None:
        return default
    low, high = limits
    is_number = mode.isascii() and mode.isdigit() and len(mode) <= len(str(high))
    if not is_number or not low <= int(mode) <= high:
        found = f"as in {name}:{default}; got {mode!r}"
        raise UnsupportedImage(f"the mode of {name} must be {what} from {low} to {high}, {found}")
    return int(mode)


def refuse_cmyk(name: str, metadata: Mapping[str, bytes]) -> None:
    """Raise UnsupportedImage if the metadata of an image says that its channels are CMYK."""
    if metadata.get("color") == b"CMYK":
        raise UnsupportedImage(f"{name} cannot store CMYK; use hri, or convert the image to RGB")


def corrupt(name: str, offset: int, what: str) -> CorruptImage:
    """Return the error for damage at a byte of a file."""
    error = CorruptImage(f"{name}, at byte {offset}: {what}")
    error.offset = offset
    return error
