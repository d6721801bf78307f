# SPDX-License-Identifier: Apache-2.0
"""`headrace.patches`: a dataset whose samples are regions of large images. Only the tiles of a region are read.

A patch is a copy of the sample that it is part of (spec/order.md §1), and the transform `Patch` cuts it. So masks,
boxes and points follow as they do with every crop, and nothing else needs to know patches.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import errors
from headrace.errors import LoaderError
from headrace.loader._options import Options, at_least
from headrace.loader.pixels._engine import EngineSource, take_pixels
from headrace.loader.sampling._joined import Joined
from headrace.records import Dataset, EpochCounter, open_dataset
from headrace.records.index.arrays import from_numpy
from headrace.records.index.numbers import COPY_BITS, MAX_COPIES
from headrace.records.sample import Place, SampleMaker
from headrace.transforms import Patch, listed

_MASK = (1 << COPY_BITS) - 1


class Window(NamedTuple):
    """Where a patch of a grid is: the index of its image in the dataset, and the region."""

    image: int
    top: int
    left: int
    height: int
    width: int


class PatchNumbers:
    """The sample number of each patch, computed when it is asked for."""

    def __init__(
        self,
        rows: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.rows, self._counts, self._ends, self._chosen = rows, counts, np.cumsum(counts), chosen
        if len(rows) and self._ends[-1] > 1 << COPY_BITS:
            raise ValueError(f"there must be at most 2**{COPY_BITS} patches; got {self._ends[-1]}: use a larger stride")

    def __len__(self) -> int:
        if self._chosen is not None:
            return len(self._chosen)
        return int(self._ends[-1]) if len(self._ends) else 0

    def select(self, chosen: npt.NDArray[np.int64]) -> PatchNumbers:
        """Return some of them."""
        return PatchNumbers(self.rows, self._counts, self.original(chosen))

    def original(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the positions among all patches."""
        return positions if self._chosen is None else self._chosen[positions]

    def places(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return (position of the image, number of the patch in it)."""
        given = self.original(positions)
        images = np.searchsorted(self._ends, given, side="right").astype(np.int64)
        return images, given - np.concatenate([[0], self._ends])[images].astype(np.int64)

    def __getitem__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        images, numbers = self.places(np.asarray(positions, np.int64))
        taken: npt.NDArray[np.int64] = self.rows[images] + (numbers << COPY_BITS)
        return taken

    def digest(self) -> str:
        """Return a digest of the images, their counts and the selection, without computing every number."""
        digest = blake2b(digest_size=16)
        for table in (self.rows, self._ends, self._chosen):
            digest.update(b"all" if table is None else np.ascontiguousarray(table, "<i8").tobytes())
        return digest.hexdigest()

    @property
    def array(self) -> npt.NDArray[np.int64]:
        """All of them, 8 bytes each."""
        return self[np.arange(len(self))]


class Patches(Dataset):
    """A sequence of patches. `headrace.patches` makes it."""

    patch: Patch
    _numbers: PatchNumbers
    _reader: tuple[int, EngineSource] | None = None

    @classmethod
    def of(cls, dataset: Dataset, patch: Patch, counts: npt.NDArray[np.int64]) -> Patches:
        """Return so many patches of each image of a dataset."""
        self = cls.__new__(cls)
        self.__dict__.update(dataset.__dict__)
        rows = np.arange(dataset.manifest.samples, dtype=np.int64) if dataset.rows is None else dataset.rows
        self.patch, self.transform = patch, [patch, *listed(self.transform)]
        self._numbers = self._rows = PatchNumbers(rows, counts)  # type: ignore[assignment]
        self._compiled = self._compile()
        self._epochs = EpochCounter(len(self._numbers))
        for cached in ("_is_random", "_maker", "_mixer"):
            self.__dict__.pop(cached, None)
        return self

    def with_patch(self, transform: Any) -> list[Any]:
        """Return transforms that begin with the crop of a patch."""
        return [self.patch, *listed(transform)]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = self._position(index)
        return self._samples([self._row(at)], [self._epochs.epoch_of(self._visit(at), warn=self._is_random)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several patches, as `Dataset.__getitems__`."""
        at = [self._position(index) for index in indices]
        epochs = [self._epochs.next_epoch_of(self._visit(each)) for each in at]
        return self._samples([self._row(each) for each in at], epochs)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.patch.size))  # type: ignore[arg-type]
        return f"<Patches of {size} of {str(self.path)!r}: {len(self)} of {len(self._numbers.rows)} images>"

    def window(self, index: int) -> Window:
        """Return where a patch of a grid is, to put predictions together."""
        if self.patch.stride is None:
            raise ValueError("patches at random places have no window: their place depends on seed and epoch")
        at = self._position(index)
        (image,), (number,) = self._numbers.places(np.array([at]))
        row = int(self._numbers.rows[image])
        image_size = self._maker.size(row)
        (height, width), (down, across) = self.patch.size, self.patch.stride  # type: ignore[misc]
        per_row = _steps(np.array([image_size[1]]), width, across)[0]
        top, left = int(number) // int(per_row) * down, int(number) % int(per_row) * across
        top, left = min(top, max(0, image_size[0] - height)), min(left, max(0, image_size[1] - width))
        return Window(int(image), top, left, height, width)

    def _position(self, index: int) -> int:
        position = operator.index(index)
        position += len(self) if position < 0 else 0
        if not 0 <= position < len(self):
            raise IndexError(f"index must be in [{-len(self)}, {len(self)}); got {index}")
        return position

    def _row(self, index: int) -> int:
        return int(self._numbers[np.array([self._position(index)])][0])

    def _visit(self, position: int) -> int:
        return int(self._numbers.original(np.array([position]))[0])

    @property
    def rows(self) -> npt.NDArray[np.int64] | None:
        """The sample number of each patch, 8 bytes each: its row, and the number of the patch in the upper bits."""
        return self._numbers.array

    @property
    def identity(self) -> str:
        """What the patches of a run depend on, for its state."""
        return f"{self.patch} {self._numbers.digest()}"

    def column(self, name: str) -> npt.NDArray[Any]:
        images, _ = self._numbers.places(np.arange(len(self)))
        return self._files.index.column(name)[self._numbers.rows[images]]

    @property
    def table(self) -> pa.Table:
        """The index as an Arrow table, with the row of its image for each patch."""
        images, _ = self._numbers.places(np.arange(len(self)))
        return self._files.index.table().take(from_numpy(self._numbers.rows[images], pa.int64()))

    @cached_property
    def _maker(self) -> SampleMaker:
        return PatchMaker(self, self._compiled)

    def reader(self) -> EngineSource:
        """Return the engine that reads single patches, in the thread that waits for them."""
        if self._reader is None or self._reader[0] != os.getpid():
            names = [each.name for each in self.manifest.fields if each.is_pixels]
            self._reader = os.getpid(), EngineSource(self, names, self._compiled, seed=self.seed, options=_inline(self))  # type: ignore[arg-type]
        return self._reader[1]

    def _view(self, rows: npt.NDArray[np.int64]) -> Dataset:
        view = Patches.__new__(Patches)
        chosen = self._numbers.select(rows)
        view.__dict__.update(self.__dict__, _numbers=chosen, _rows=chosen)
        view.__dict__.pop("_maker", None)
        return view

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "patch": self.patch, "_numbers": self._numbers}


class PatchMaker(SampleMaker):
    """Reads the tiles of a patch alone: with the loader's engine, in the calling thread."""

    def read_image(self, place: Place, field: Any, keys: list[dict[str, int]], transform: Any = None) -> Any:
        dataset = cast("Patches", self._dataset)
        if dataset.objects is not None:
            return super().read_image(place, field, keys, transform)
        made = dataset.reader().submit(np.array([place.row], np.int64), keys[0]["epoch"], [field.name])
        while not made.wait(1.0):
            pass
        stack = take_pixels(made)[0]
        for _, _, _, kind, message in made.failures():
            raise getattr(errors, kind, LoaderError)(f"{dataset.row_name(place.row)}: field {field.name!r}: {message}")
        return tuple(group[0] for group in stack) if isinstance(stack, tuple) else stack[0]


def patches(
    dataset: Dataset | str | os.PathLike[str],
    size: int | Sequence[int],
    *,
    stride: int | Sequence[int] | None = None,
    per_image: int | None = None,
    field: str | None = None,
    fill: float = 0,
    mask_fill: float = 255,
) -> Patches:
    """Return a dataset whose samples are patches of the images of another one: for slides, satellite scenes and CT.

    Of a `.hri` image only the tiles that a patch touches are read and decoded, so images may be as large as the format
    allows. Masks, boxes, keypoints and polygons follow. Other transforms come after the crop.

    Args:
        dataset: A dataset or its path. Its transforms, or those of the loader, work on patches.
        size: Height and width of a patch: a number or `(height, width)`.
        stride: The distance between patches of a grid, for evaluation; None is `size`, so that they do not overlap. The
            last row and column end at the border of the image. A number or `(down, across)`.
        per_image: Instead of a grid, so many patches per image and epoch, at random places that depend on seed and
            epoch alone: for training.
        field: The image field whose size decides how many patches there are; None is the first one.
        fill: Pixel value where an image is smaller than a patch: at the bottom and at the right.
        mask_fill: That of masks.

    """
    opened = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
    if isinstance(opened, Joined | Patches):
        raise TypeError(f"patches needs a single dataset of images; got {opened!r}")
    if per_image is not None and stride is not None:
        raise ValueError("stride and per_image must not be set together: one is a grid, the other one is random")
    if opened.manifest.samples > 1 << COPY_BITS:
        raise ValueError(f"patches works with at most 2**{COPY_BITS} images; got {opened.manifest.samples}")
    images = [name for name, kind in opened.fields.items() if kind == "image"]
    name = field or (images[0] if images else None)
    if name not in images:
        raise ValueError(f"field must be an image field; got {name!r}, found {', '.join(images) or 'none'}")
    if per_image is not None:
        count = at_least("per_image", per_image, 1)
        counts = np.full(len(opened), count, np.int64)
        patch = Patch(size, None, fill, mask_fill)
    else:
        patch = Patch(size, size if stride is None else stride, fill, mask_fill)
        (height, width), (down, across) = patch.size, patch.stride  # type: ignore[misc]
        sides = [opened.column(f"{name}.0.{side}").astype(np.int64) for side in ("height", "width")]
        counts = _steps(sides[0], height, down) * _steps(sides[1], width, across)
    if len(counts) and counts.max() > MAX_COPIES:
        largest = int(counts.argmax())
        raise ValueError(
            f"an image must have at most {MAX_COPIES} patches; image {largest} has {counts[largest]}: use a larger "
            f"stride or per_image"
        )
    return Patches.of(opened, patch, counts)


def chosen_transform(dataset: Dataset, transform: Any, provider: object) -> Any:
    """Return the transforms of a loader: its own or the dataset's, after the crop of a patch."""
    if provider is not None and isinstance(dataset, Patches):
        raise ValueError("offload must not be set together with patches, which offload workers do not know")
    if transform is None:
        return dataset.transform
    return dataset.with_patch(transform) if isinstance(dataset, Patches) else transform


def _steps(side: npt.NDArray[np.int64], size: int, stride: int) -> npt.NDArray[np.int64]:
    """Return the number of patches along a side. Sides are claims of the index, at most 2**32."""
    return -(-np.maximum(0, side - size) // stride) + 1


def _inline(dataset: Dataset) -> Options:
    """Return the options of a loader that works in the calling thread."""
    return Options(
        batch_size=1,
        drop_last=False,
        fields=tuple(dataset.fields),
        num_workers=0,
        min_batches_ahead=1,
        pin_memory=False,
        device=None,
        output="numpy",
        collate_fn=None,
        on_error="raise",
        dtype=None,
        layout="CHW",
        ragged="list",
        color=dataset.color,
        box_filter=dataset.box_filter,
        direct_io=False,
        approximate_jpeg=False,
        max_pixels=dataset.max_pixels,
    )
