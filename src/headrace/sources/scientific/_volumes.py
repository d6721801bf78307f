# SPDX-License-Identifier: Apache-2.0
"""What the sources of volumes share: which part of a file is a sample, and how its numbers are stored.

A file contains an array with two image axes, at most one axis of channels, and slice axes: the third axis of a CT scan,
the pages of a TIFF file, time. With `volume="slices"` each slice is a sample, and the array is read once for all of
them. With `volume="channels"` each file is a sample, whose slices are its channels.

Numbers are stored as they are in the file: uint8, uint16 and int16 as images, others as tensors of the same dtype, so
all of them must have one shape. The sizes that a file announces are checked before memory is allocated for them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import BadSource, HeadraceError, MissingExtra
from headrace.formats import MAX_PIXELS
from headrace.sources._paths import Found, find, join, list_images
from headrace.sources._types import Ignored, Item, PerThread
from headrace.tensors import TensorType

VolumeRule: TypeAlias = Literal["slices", "channels"]
MAX_VOLUME_BYTES = 1 << 32
"""Largest array of a file in memory."""
MAX_CHANNELS = 64
_PIXELS = ("uint8", "uint16", "int16")
# Deflate packs at most 1032 bytes into one, LZW at most 1365. Other methods may pack small images better.
_MAX_RATIO = 1400
_MIN_CHECKED_BYTES = 1 << 24
_MAX_MESSAGE = 300


class Layout(NamedTuple):
    """The array of a file, as its header announces it: `[slices, height, width, channels]`."""

    slices: int
    height: int
    width: int
    channels: int
    dtype: np.dtype[Any]

    def check(self, max_pixels: int, n_bytes_file: int, *, is_compressed: bool) -> None:
        """Raise BadSource if an image or the array is too large, or larger than a file of this size can hold."""
        if min(self[:4]) < 1:
            raise BadSource(f"every side of the array must be at least 1; its header announces {list(self[:4])}")
        if self.height * self.width > max_pixels:
            raise BadSource(
                f"an image must have at most {max_pixels} pixels; its header announces {self.width} x {self.height}"
            )
        n_bytes = math.prod(self[:4]) * self.dtype.itemsize
        if n_bytes > MAX_VOLUME_BYTES:
            raise BadSource(
                f"an array must have at most {MAX_VOLUME_BYTES} bytes; its header announces {list(self[:4])} of "
                f"{self.dtype}, {n_bytes} bytes"
            )
        held = max(_MAX_RATIO * n_bytes_file, _MIN_CHECKED_BYTES) if is_compressed else n_bytes_file
        if n_bytes > held:
            raise BadSource(
                f"its header announces {list(self[:4])} of {self.dtype}, {n_bytes} bytes, more than a file of "
                f"{n_bytes_file} bytes holds"
            )

    def samples(self, rule: VolumeRule) -> int:
        return self.slices if rule == "slices" else 1

    def field_type(self, rule: VolumeRule) -> str:
        """Return the type of the field that holds the numbers of a sample."""
        name = self.dtype.name
        channels = self.channels if rule == "slices" else self.channels * self.slices
        if name in _PIXELS or name == "bool":
            if channels > MAX_CHANNELS:
                raise BadSource(
                    f"an image must have at most {MAX_CHANNELS} channels; the file has {channels}: use volume='slices'"
                )
            return "image"
        shape = (self.height, self.width) if channels == 1 else (self.height, self.width, channels)
        try:
            return str(TensorType.of(name, shape))
        except ValueError as error:
            raise BadSource(f"its numbers cannot be stored: {error}") from None


class OpenVolume(Protocol):
    """An open file. Its pixels are read when they are first needed."""

    layout: Layout
    is_compressed: bool

    def read(self, which: int) -> npt.NDArray[Any]:
        """Return slice number `which`: `[height, width, channels]`."""

    def values(self, which: int) -> dict[str, object]:
        """Return the fields of a slice beside its numbers."""


class VolumeSource:
    """The files under a folder, or one file, as samples of one slice or one volume each."""

    kind: str
    sequential = False
    classes: Sequence[str] | None = None
    value_fields: ClassVar[Mapping[str, str]]
    """The fields of a sample beside its numbers."""

    def __init__(self, root: str | Path, *, volume: VolumeRule, max_pixels: int = MAX_PIXELS) -> None:
        if volume not in ("slices", "channels"):
            raise BadSource(f"volume must be 'slices' or 'channels'; got {volume!r}")
        self._given = os.fspath(root)
        self._volume, self._max_pixels = volume, max_pixels
        self._held: PerThread[OpenVolume] = PerThread()
        self.ignored = Ignored()
        image = self._first().field_type(volume)
        place = {"slice": "int64"} if volume == "slices" else {}
        self.fields: Mapping[str, str] = {"image": image, **place, **self.value_fields}

    @property
    def options(self) -> dict[str, Any]:
        """What the samples depend on: a build with other options does not continue another one."""
        return {"volume": self._volume}

    def accepts(self, name: str) -> bool:
        """Return whether a file of this name belongs to the source."""
        raise NotImplementedError

    def open(self, path: str, n_bytes: int) -> OpenVolume:
        """Open a file and read its header. May raise anything on damaged files."""
        raise NotImplementedError

    def files(self) -> Iterator[Found]:
        """List the files of the source."""
        path = Path(self._given)
        if path.is_dir():
            yield from list_images(self._given, "", self.ignored, self.accepts)
        else:
            yield find(os.fspath(path.parent), path.name)

    @property
    def root(self) -> str:
        path = Path(self._given)
        return self._given if path.is_dir() else os.fspath(path.parent)

    def _first(self) -> Layout:
        """Return the layout of the first file that can be read."""
        problem = ""
        for found in self.files():
            try:
                Item("", 0, (), 0, found.problem).check()
                return self._opened(found.path, found.n_bytes).layout
            except BadSource as error:
                problem = problem or str(error)
        raise BadSource(problem or f"{self._given} contains no {self.kind} files")

    def _opened(self, relative: str, n_bytes: int) -> OpenVolume:
        path = join(self.root, relative)
        opened: OpenVolume = self._guarded(path, lambda: self.open(path, n_bytes))
        check = opened.layout.check
        self._guarded(path, lambda: check(self._max_pixels, n_bytes, is_compressed=opened.is_compressed))
        self._guarded(path, lambda: opened.layout.field_type(self._volume))
        return opened

    def _guarded(self, path: str, action: Callable[[], Any]) -> Any:
        """Run code of a parser; whatever it raises on a damaged file becomes BadSource with the name of the file."""
        try:
            return action()
        except MissingExtra:
            raise
        except HeadraceError as error:
            raise BadSource(f"{path}: {error}") from error
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise BadSource(f"{path} cannot be read as {self.kind}: {message[:_MAX_MESSAGE]}") from error

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        empty = True
        for found in self.files():
            empty = False
            yield from self._items_of(found)
        if empty:
            raise BadSource(f"{self._given} contains no {self.kind} files")

    def _items_of(self, found: Found) -> Iterator[Item]:
        if found.problem is not None:
            yield found.item()
            return
        try:
            count = self._opened(found.path, found.n_bytes).layout.samples(self._volume)
        except BadSource as error:
            yield found.unusable(str(error))
            return
        for which in range(count):
            key = found.path if count == 1 else f"{found.path}/{which:05d}"
            locator = (found.path, found.n_bytes, found.stamp, which)
            yield Item(key, found.n_bytes // count, locator, found.stamp)

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        relative, n_bytes, stamp, which = item.locator
        opened = self._held.get((relative, stamp), lambda: self._opened(relative, n_bytes))
        path = join(self.root, relative)
        numbers = self._guarded(path, lambda: self._numbers(opened, which))
        place = {"slice": which} if self._volume == "slices" else {}
        return {"image": numbers, **place, **self._guarded(path, lambda: opened.values(which))}

    def _numbers(self, opened: OpenVolume, which: int) -> npt.NDArray[Any]:
        """Return the numbers of a sample; BadSource if they are of another type than those of the first file."""
        found, wanted = opened.layout.field_type(self._volume), self.fields["image"]
        if found != wanted:
            raise BadSource(
                f"all files must have the type of the first one, {wanted}; this one is {found}: build them separately"
            )
        slices = [which] if self._volume == "slices" else range(opened.layout.slices)
        parts = [opened.read(number) for number in slices]
        pixels = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        pixels = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("="))
        return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
