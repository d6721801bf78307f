# SPDX-License-Identifier: Apache-2.0
"""Batches of images of similar size: each global batch comes from one bucket, on all ranks. spec/order.md §5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidState
from headrace.loader.order._classes import Members
from headrace.loader.order._keys import draw, epoch_key
from headrace.loader.order._order import EpochPlan, Order
from headrace.loader.sampling._protocol import (
    EpochRequest,
    EpochSamples,
    Indices,
    OpenSampler,
    Progress,
    Repeats,
    column_digest,
    progress_count,
)
from headrace.records import Dataset

By: TypeAlias = Literal["shape", "aspect", "area", "height", "width", "longest"]

STREAM = 7
MAX_BUCKETS = 4096
_LOWEST, _HIGHEST = 1, 65535  # sides that the dataset format allows


@dataclass(frozen=True)
class Buckets:
    """Batches of images of similar size, so that little is padded.

    In each step all ranks have a batch from the same bucket, with the same number of samples. With `ragged="pad"` they
    are padded to the same shape too: that of the largest image in the global batch, unless the transforms change the
    size of images. Sizes are those of the index; nothing is decoded.

    Args:
        by: What images of a bucket have in common: `"shape"` (exactly the same height and width), `"aspect"` (width /
            height), `"area"`, `"height"`, `"width"`, or `"longest"`, the longer side.
        edges: The limits between buckets, ascending. None makes `count` buckets with about equally many images.
        count: The number of buckets, if there are no edges. With `"shape"` each shape is one.
        field: The image field whose size counts; None is the first one.
        shuffle: Whether images and batches come in a new order in every epoch.

    """

    by: By = "aspect"
    edges: Sequence[float] | None = None
    count: int = 8
    field: str | None = None
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            listed = ", ".join(map(repr, get_args(By)))
            raise ValueError(f"Buckets: by must be one of {listed}; got {self.by!r}")
        if not isinstance(self.count, int) or not 1 <= self.count <= MAX_BUCKETS:
            raise ValueError(f"Buckets: count must be an integer in [1, {MAX_BUCKETS}]; got {self.count!r}")
        if self.edges is not None:
            edges = tuple(float(edge) for edge in self.edges)
            if self.by == "shape" or list(edges) != sorted(set(edges)) or not np.isfinite(edges).all():
                raise ValueError(f"Buckets: edges must be ascending numbers, and none with by='shape'; got {edges}")
            object.__setattr__(self, "edges", edges)

    def open(self, dataset: Dataset) -> OpenSampler:
        """Read the sizes of all images from the index."""
        images = [name for name, kind in dataset.fields.items() if kind == "image"]
        field = self.field or (images[0] if images else None)
        if field not in images:
            raise ValueError(
                f"Buckets: field must be an image field; got {field!r}, found {', '.join(images) or 'none'}"
            )
        sides = [dataset.column(f"{field}.0.{name}").astype(np.int64) for name in ("height", "width")]
        height, width = (np.clip(side, _LOWEST, _HIGHEST) for side in sides)  # the index may be damaged
        return OpenBuckets(self._bucket_of(height, width), height, width, shuffle=self.shuffle)

    def _bucket_of(self, height: npt.NDArray[np.int64], width: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        values: npt.NDArray[Any]
        if self.by == "shape":
            values = height << 32 | width
            if len(np.unique(values)) > MAX_BUCKETS:
                raise ValueError(
                    f"Buckets: by='shape' works with at most {MAX_BUCKETS} shapes; found {len(np.unique(values))}: "
                    f"use by='aspect' or by='area'"
                )
            return values
        if self.by == "aspect":
            values = width / height
        elif self.by == "area":
            values = width * height
        else:
            values = {"height": height, "width": width, "longest": np.maximum(width, height)}[self.by]
        edges = np.asarray(self.edges or (), np.float64)
        if self.edges is None and len(values):
            ordered = np.sort(values)
            edges = np.unique(ordered[[len(ordered) * k // self.count for k in range(1, self.count)]])
        return np.searchsorted(edges, values, side="right").astype(np.int64)


class OpenBuckets(OpenSampler):
    """The buckets of a dataset: which images each has."""

    def __init__(
        self,
        buckets: npt.NDArray[np.int64],
        height: npt.NDArray[np.int64],
        width: npt.NDArray[np.int64],
        *,
        shuffle: bool,
    ) -> None:
        self.members = Members(buckets)
        self.height, self.width, self.shuffle = height, width, shuffle
        self.identity = f"buckets {shuffle} {column_digest(self.members.rows, self.members.counts)}"

    def start(self, request: EpochRequest) -> EpochSamples:
        starts = [0] * len(self.members)
        if request.progress is None:
            return BucketSamples(self, request, starts)
        starts, stride, done = self._parsed(request.progress)
        if stride == request.batch_size * request.world_size and request.progress["drop_last"] == request.drop_last:
            return BucketSamples(self, request, starts, done)
        # With other batches the rest of each bucket is divided again.
        earlier = EpochRequest(
            epoch=request.epoch, seed=request.seed, batch_size=stride, drop_last=bool(request.progress["drop_last"])
        )
        return BucketSamples(self, request, BucketSamples(self, earlier, starts).taken_after(done))

    def _parsed(self, progress: Progress) -> tuple[list[int], int, int]:
        starts = progress.get("starts")
        counts = self.members.counts.tolist()
        if (
            not isinstance(starts, list)
            or len(starts) != len(counts)
            or not all(type(at) is int and 0 <= at <= n for at, n in zip(starts, counts, strict=True))
            or not isinstance(progress.get("drop_last"), bool)
        ):
            raise InvalidState(f"the state is damaged: its starts of {len(counts)} buckets are {starts!r}")
        stride = progress_count(progress, "stride", 1 << 48)
        if stride < 1:
            raise InvalidState("the state is damaged: stride must be at least 1; it is 0")
        return starts, stride, progress_count(progress, "batches", sum(-(-n // stride) for n in counts))


class BucketSamples(EpochSamples):
    """The batches of one rank: a fixed sequence of buckets, each of which gives its next batch.

    The remaining samples of a bucket make a smaller batch, filled up to the number of ranks, or are dropped.
    """

    def __init__(self, buckets: OpenBuckets, request: EpochRequest, starts: list[int], skipped: int = 0) -> None:
        self._buckets, self._request, self._starts, self._skipped = buckets, request, starts, skipped
        counts = buckets.members.counts.tolist()
        self._plans = [self._plan(n, start) for n, start in zip(counts, starts, strict=True)]
        key = epoch_key(request.seed, request.epoch, STREAM)
        self._orders = [(Order(n), draw(key, bucket + 1)) for bucket, n in enumerate(counts)]
        lengths = np.array([plan.remaining for plan in self._plans], np.int64)
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        if buckets.shuffle:
            sequence = sequence[Order(len(sequence)).take_keyed(draw(key, 0), range(len(sequence)))]
        self._sequence = sequence
        # The number of the batch among those of its bucket.
        self._numbers = np.empty_like(sequence)
        self._numbers[np.argsort(sequence, kind="stable")] = np.concatenate([[0], *map(np.arange, lengths)])[1:]
        self._pixels: dict[int, tuple[int, int, tuple[int, int]]] = {}

    def _plan(self, n: int, start: int) -> EpochPlan:
        r = self._request
        return EpochPlan(
            n, batch_size=r.batch_size, rank=r.rank, world_size=r.world_size, drop_last=r.drop_last, start=start
        )

    def __len__(self) -> int:
        return len(self._sequence) - self._skipped

    def batch(self, g: int) -> tuple[Indices, Repeats]:
        bucket, number = (int(table[self._skipped + g]) for table in (self._sequence, self._numbers))
        positions, repeats = self._plans[bucket].batch(number)
        return self._rows(bucket, positions), repeats

    def _rows(self, bucket: int, positions: Indices) -> Indices:
        order, key = self._orders[bucket]
        places = order.take_keyed(key, positions) if self._buckets.shuffle else positions
        members = self._buckets.members
        rows: Indices = members.rows[members.starts[bucket] + places]
        return rows

    def shape(self, g: int) -> tuple[int, int]:
        """Return the smallest height and width that all images of global batch g fit into."""
        return self._measured(g)[2]

    def _measured(self, g: int) -> tuple[int, int, tuple[int, int]]:
        """Return (pixels of the images, pixels with padding, padded shape) of global batch g, without repeats."""
        if g not in self._pixels:
            bucket, number = (int(table[self._skipped + g]) for table in (self._sequence, self._numbers))
            plan = self._plans[bucket]
            begin, end = plan.samples_after(number), plan.samples_after(number + 1)
            rows = self._rows(bucket, np.arange(begin, end))
            heights, widths = self._buckets.height[rows], self._buckets.width[rows]
            shape = int(heights.max()), int(widths.max())
            self._pixels[g] = int((heights * widths).sum()), shape[0] * shape[1] * len(rows), shape
        return self._pixels[g]

    def taken_after(self, g: int) -> list[int]:
        """Return how many samples of each bucket all ranks together have had after the first g batches."""
        batches = np.bincount(self._sequence[: self._skipped + g], minlength=len(self._plans)).tolist()
        return [plan.samples_after(n) for plan, n in zip(self._plans, batches, strict=True)]

    def samples_after(self, g: int) -> int:
        return sum(self.taken_after(g))

    def progress_after(self, g: int) -> Progress:
        r = self._request
        return {
            "starts": list(self._starts),
            "stride": r.batch_size * r.world_size,
            "drop_last": r.drop_last,
            "batches": self._skipped + g,
        }

    def stats(self, g: int) -> Mapping[str, Any]:
        """Return the number of buckets, and which share of the pixels of the first g batches is padding."""
        measured = [self._measured(batch) for batch in range(g)]
        real, padded = sum(each[0] for each in measured), sum(each[1] for each in measured)
        return {"buckets": len(self._plans), "padding": 1 - real / padded if padded else 0.0}
