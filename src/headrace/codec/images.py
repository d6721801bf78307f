# SPDX-License-Identifier: Apache-2.0
"""Check that an array is an image: `[H, W]` or `[H, W, C]` of uint8, uint16 or int16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import UnsupportedImage

if TYPE_CHECKING:
    import numpy.typing as npt

_DTYPES = frozenset(map(np.dtype, ("uint8", "uint16", "int16")))

_REMEDIES = {
    "b": "mask.astype(np.uint8) keeps it",
    "f": "scale and round it to uint8 or uint16 yourself: the format is lossless and does not round",
    "i": "if the values fit, .astype(np.uint8), np.uint16 or np.int16",
    "u": "if the values fit, .astype(np.uint8) or np.uint16",
}


def as_image(image: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the array itself if the core can read it, or a copy in native byte order.

    Raises:
        UnsupportedImage: Another dtype or shape; the message says how to convert.

    """
    if getattr(image, "mode", None) in {"P", "PA"} and hasattr(image, "getpalette"):
        raise UnsupportedImage(
            "this Pillow image holds indices into a palette; encode image.convert('RGB'), or import "
            "headrace.codec.pillow and save it as .hri"
        )
    array = image if type(image) is np.ndarray else _as_array(image)
    if array.dtype not in _DTYPES:
        native = array.dtype.newbyteorder("=")
        if native not in _DTYPES:
            remedy = _REMEDIES.get(array.dtype.kind, "an image must be an array of numbers")
            raise UnsupportedImage(
                f"an image must be uint8, uint16 or int16; got {array.dtype} {list(array.shape)}: {remedy}"
            )
        array = array.astype(native)
    _check_shape(array.shape, array.dtype)
    return array


def _as_array(image: Any) -> npt.NDArray[Any]:
    if type(image).__module__.partition(".")[0] != "torch":
        return np.asarray(image)
    try:
        array = np.asarray(image)
    except (TypeError, RuntimeError) as error:  # on a device, with a gradient, or of a dtype that NumPy does not have
        raise UnsupportedImage(
            f"this tensor cannot be read as an array ({error}); encode tensor.detach().cpu().to(torch.uint8).numpy()"
        ) from error
    channels_first = array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] > 4
    if channels_first:
        raise UnsupportedImage(
            f"an image must be [H, W, C]; this tensor {list(array.shape)} looks like [C, H, W]; "
            "encode tensor.permute(1, 2, 0), which does not copy"
        )
    return array


def _check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (2, 3):
        remedy = "; encode the images of a batch one by one" if len(shape) == 4 else ""
        raise UnsupportedImage(f"an image must be [H, W] or [H, W, C]; got {list(shape)}{remedy}")
    if 0 in shape:
        raise UnsupportedImage(f"an image must have at least one pixel; got {dtype} {list(shape)}")
    if max(shape[:2]) > 65535:
        raise UnsupportedImage(
            f"an image must have at most 65535 rows and columns; got {list(shape)}; cut it into parts"
        )
    if len(shape) == 3 and shape[2] > 64:
        raise UnsupportedImage(
            f"an image must be [H, W, C] with at most 64 channels; got {list(shape)}; "
            "if it is [C, H, W], encode image.transpose(1, 2, 0), which does not copy"
        )
