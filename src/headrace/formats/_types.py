# SPDX-License-Identifier: Apache-2.0
"""What every format promises, and the words its callers use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

Color: TypeAlias = Literal["keep", "RGB", "index"]
Region: TypeAlias = tuple[int, int, int, int]

MAX_PIXELS = 2**30


@dataclass(frozen=True, slots=True)
class ImageShape:
    """What a file's head says of its decoded image."""

    height: int
    width: int
    channels: int
    dtype: str
    """`"uint8"`, `"uint16"` or `"int16"`."""

    @property
    def array(self) -> tuple[int, ...]:
        """The shape of the decoded array: `(H, W)` for one channel, otherwise `(H, W, C)`."""
        if self.channels == 1:
            return (self.height, self.width)
        return (self.height, self.width, self.channels)

    def converted(self, color: Color) -> ImageShape:
        """Return the shape after decoding with a color, of an image that is not a palette."""
        return replace(self, channels=3) if color == "RGB" and self.channels <= 4 else self


class Format(Protocol):
    """A way to store one image as bytes. Stateless, picklable, safe to use from any number of threads."""

    name: str
    lossless: bool
    """What `encode` writes decodes to the very same pixels."""
    suffix: str
    can_decode_region: bool
    """A region costs about its share of the whole; otherwise the whole is decoded and cropped."""

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        """Read and validate the head; return what `decode` gives with the same `color`. No pixel is decoded."""
        ...

    def decode(
        self,
        data: Buffer,
        *,
        color: Color = "keep",
        region: Region | None = None,
        out: npt.NDArray[Any] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> npt.NDArray[Any]:
        """Decode to `[H, W]` or `[H, W, C]`; a region equals the crop of the whole, bit for bit.

        Args:
            data: A whole file. Bytes after its end are ignored where the format allows them.
            color: `"RGB"` gives three channels: gray is repeated, alpha dropped, CMYK converted as Pillow does. Depth
                stays as it is. `"keep"` leaves the channels as stored, except that a palette is looked up; `"index"`
                leaves the palette's indices too, which is what a label map means by them.
            region: `(top, left, height, width)`.
            out: Written to and returned; of the result's shape and dtype. Unspecified contents after an error.
            max_pixels: Refuse, from the head alone, to decode more; a format that cannot decode a region by itself
                counts the whole image.

        Raises:
            CorruptImage: Damaged, truncated or hostile bytes.
            UnsupportedImage: Bytes of a kind that is not read, such as an animation.
            ImageTooLarge: More than `max_pixels`.

        The GIL is released while the pixels are decoded.

        """
        ...

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        """Encode an image.

        Args:
            image: `[H, W]` or `[H, W, C]`, uint8, uint16 or int16; a format that cannot hold it says so.
            mode: What follows the colon in `hri:fast`, `jpeg:90`, `png:9`; None for the format's own default.
            metadata: `icc`, `exif` and `xmp` blocks, as `metadata` gives them. What a format cannot carry is left out.

        The bytes depend on the arguments and the versions of the libraries, not on the backend that decodes.

        """
        ...

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        """The `icc`, `exif` and `xmp` blocks of a file; a JPEG in CMYK also says `color: CMYK`."""
        ...
