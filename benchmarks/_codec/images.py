# SPDX-License-Identifier: Apache-2.0
"""The images that are measured: which files make a set, and how each becomes an array."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[Any]  # C-contiguous [H, W] or [H, W, C], uint8, uint16 or int16

CONVERSIONS = (
    "Palette images become RGB, or RGBA if they have transparency, and bilevel images 8-bit gray, for all codecs "
    "alike; 16 bit is kept."
)

_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".npy", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

# The photographs that every scikit-image wheel holds; none is downloaded. The .jpg ones were once stored with loss.
_BUNDLED = {
    "scikit-image colour": (
        "astronaut.png",
        "chelsea.png",
        "coffee.png",
        "hubble_deep_field.jpg",
        "ihc.png",
        "motorcycle_left.png",
        "motorcycle_right.png",
        "retina.jpg",
        "rocket.jpg",
    ),
    "scikit-image gray": ("brick.png", "camera.png", "coins.png", "grass.png", "gravel.png", "moon.png"),
}


@dataclass(frozen=True)
class ImageSet:
    """Files that are measured and summed up together."""

    name: str
    root: Path
    files: tuple[Path, ...]

    def first(self, n: int) -> ImageSet:
        """The same set cut to its first `n` files."""
        return ImageSet(self.name, self.root, self.files[:n])

    def label(self, file: Path) -> str:
        """The name of one of the files within the set."""
        return file.relative_to(self.root).as_posix()

    def sha256(self) -> str:
        """A hash over the names and bytes of the files, in order."""
        digest = hashlib.sha256()
        for file in self.files:
            encoded = file.read_bytes()
            digest.update(f"{self.label(file)}\0{len(encoded)}\0".encode())
            digest.update(encoded)
        return digest.hexdigest()


def folder_set(folder: Path) -> ImageSet:
    """All images below `folder`, by name."""
    if not folder.is_dir():
        raise ValueError(f"{folder} must be a folder of images ({_suffix_list()}); it is not a folder")
    files = tuple(sorted(file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file()))
    if not files:
        raise ValueError(f"{folder} must hold images ({_suffix_list()}); found none")
    return ImageSet(folder.resolve().name, folder, files)


def bundled_sets() -> list[ImageSet]:
    """The photographs inside the installed scikit-image: colour, and gray."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("name a folder of images, or `pip install scikit-image`, whose photographs are the default")
    root = Path(spec.submodule_search_locations[0]) / "data"
    sets = []
    for name, members in _BUNDLED.items():
        files = tuple(root / member for member in members if (root / member).is_file())
        if files:
            sets.append(ImageSet(name, root, files))
    if not sets:
        raise ValueError(f"scikit-image must have its photographs in {root}; found none: name a folder of images")
    return sets


def load(file: Path) -> Pixels:
    """Read one image, in the depth in which it is stored."""
    suffix = file.suffix.lower()
    if suffix == ".npy":
        pixels = np.load(file, allow_pickle=False)
    elif suffix in {".tif", ".tiff"} or _is_deep_colour_png(file):
        # Pillow would silently round 16-bit colour down to 8 bit.
        imagecodecs = importlib.import_module("imagecodecs")
        encoded = file.read_bytes()
        pixels = imagecodecs.png_decode(encoded) if suffix == ".png" else imagecodecs.tiff_decode(encoded)
    else:
        pixels = _load_with_pillow(file)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or pixels.dtype not in (np.uint8, np.uint16, np.int16):
        raise ValueError(f"{file} must be an image of 8 or 16 bit; got {pixels.dtype} of shape {pixels.shape}")
    return np.ascontiguousarray(pixels)


def channels(pixels: Pixels) -> int:
    """Return the number of channels."""
    return 1 if pixels.ndim == 2 else int(pixels.shape[2])


def n_pixels(pixels: Pixels) -> int:
    """Height times width."""
    return int(pixels.shape[0] * pixels.shape[1])


def _load_with_pillow(file: Path) -> Pixels:
    with Image.open(file) as image:
        mode = image.mode
        if mode == "P":
            return np.asarray(image.convert("RGBA" if "transparency" in image.info else "RGB"))
        if mode == "1":
            return np.asarray(image.convert("L"))
        pixels = np.asarray(image)
    # Older Pillows open 16-bit gray as 32 bit; big-endian files keep their byte order.
    return pixels.astype(np.uint16) if mode.startswith("I") else pixels


def _is_deep_colour_png(file: Path) -> bool:
    """Return whether IHDR has 16 bits per sample and more than one channel."""
    if file.suffix.lower() != ".png":
        return False
    with file.open("rb") as stream:
        head = stream.read(26)
    return head[12:16] == b"IHDR" and head[24] == 16 and head[25] != 0


def _suffix_list() -> str:
    return ", ".join(sorted(_SUFFIXES))
