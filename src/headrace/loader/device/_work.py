# SPDX-License-Identifier: Apache-2.0
"""One batch on a device, from its plan to tensors: read, lay out, copy once, decode, assemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from headrace import kernels
from headrace.errors import HeadraceError
from headrace.loader.batch._stats import Clock, Figures
from headrace.loader.device._bytes import EncodedImages, ImageHead, StoredTiles
from headrace.loader.device._groups import Group, Made, as_copyable, damaged, kind_of, make_groups, prepare, run
from headrace.loader.device._plan import FieldPlan
from headrace.loader.device._staging import Piece, Staging, StagingRing
from headrace.loader.device._transfer import Transfer
from headrace.loader.pixels._engine import PixelBatch

Failure: TypeAlias = tuple[int, int, int, str, str]
Heads: TypeAlias = dict[tuple[int, int], ImageHead]
"""Image heads by (field number, position)."""
Check: TypeAlias = Callable[[], None]
"""Called during waits; raises if the batch is no longer needed."""

_WAIT_SECONDS = 0.1
_PARTS = ("shard", "offset", "length", "height", "width", "channels", "dtype", "format")


class BatchRequest(NamedTuple):
    """A batch to make: for each field its plan, and the CPU's part, which the engine works on already."""

    samples: int
    views: int
    plans: tuple[FieldPlan, ...]
    rest: tuple[PixelBatch | None, ...]


@dataclass(slots=True)
class DecodedBatch:
    """A batch on the device, complete after the event."""

    fields: list[Any]
    failures: list[Failure]
    status: torch.Tensor | None = None  # what the device found damaged, in host memory; valid after the event
    owners: list[tuple[int, int]] = field(default_factory=list)  # position and field of each number of the status
    event: Any | None = None

    def all_failures(self) -> list[Failure]:
        """Return all failures, including those that the device found. Call it after the event."""
        codes = [] if self.status is None else self.status.tolist()
        found = []
        for number, error in kernels.failures(codes):
            position, of_field = self.owners[number]
            found.append((position, of_field, 0, "CorruptImage", str(error).removeprefix(f"image {number}: ")))
        return self.failures + found


class Stacked(NamedTuple):
    """Pixels that the CPU has decoded, laid out for the copy."""

    places: list[int]
    place_index: Piece
    piece: Piece
    dtype: torch.dtype
    shape: tuple[int, ...]


class DeviceWork:
    """Makes one batch after another, in one thread."""

    def __init__(self, images: EncodedImages, transfer: Transfer) -> None:
        self.images = images
        self._transfer, self._device = transfer, transfer.device
        self._ring = StagingRing(pin=transfer.pins_staging)
        self.figures = Figures()

    def run(self, request: BatchRequest, check: Check) -> DecodedBatch:
        """Launch everything for a batch."""
        result = DecodedBatch([], [])
        clock, counted = Clock(), self.figures.own_cpu_seconds
        groups = make_groups(request.plans)
        heads = self._read(request, groups, result)
        check()
        staging = self._ring.next(check)
        for group in groups:
            self._prepare(group, heads, staging, result)
        groups = [group for group in groups if group.jobs]
        stacks = [self._rest(request, number, staging, result, check) for number in range(len(request.plans))]
        transfer = self._transfer
        with transfer.on("copy"):
            sent = staging.send(self._device)
            copied = transfer.record("copy")
        transfer.share(sent, "decode")
        transfer.wait("decode", copied)
        with transfer.on("decode"):
            made = self._decode(groups, staging, result)
            for number, own in enumerate(stacks):
                parts = [each for at, each in made if at == number] + [_on_device(stack, staging) for stack in own]
                result.fields.append(self._assembled(parts, request, _common_kind(request, number, own)))
            result.event = transfer.record("decode")
        transfer.share(result.fields, "deliver")
        self._ring.sent(staging, copied)
        clock.stop()
        # The CPU time that `_read` and `_prepare` have not counted: launches, resize tables, assembling.
        forms = [job.format for group in groups for job in group.jobs]
        rest = clock.own_cpu_seconds - (self.figures.own_cpu_seconds - counted)
        self.figures.spread(forms, cpu_seconds=max(rest, 0.0))
        return result

    def _read(self, request: BatchRequest, groups: Sequence[Group], result: DecodedBatch) -> Heads:
        """Read the image heads of the jobs, and remove the jobs of images that cannot be read."""
        needed: dict[int, dict[int, None]] = {}  # the positions of each field, each once
        for group in groups:
            needed.setdefault(group.field_number, {}).update(dict.fromkeys(job.position for job in group.jobs))
        keys = [(number, position) for number, positions in needed.items() for position in positions]
        columns = [(request.plans[number].columns, np.array([*positions])) for number, positions in needed.items()]
        rows = {part: np.concatenate([own[part][at] for own, at in columns]) for part in _PARTS} if columns else {}
        heads: Heads = {}
        read = self.images.read(rows, self.figures) if keys else []
        for (number, position), image in zip(keys, read, strict=True):
            if isinstance(image, HeadraceError):
                result.failures.append((position, number, 0, type(image).__name__, str(image)))
            else:
                heads[number, position] = image
        for group in groups:
            group.jobs = [job for job in group.jobs if (group.field_number, job.position) in heads]
        return heads

    def _prepare(self, group: Group, heads: Heads, staging: Staging, result: DecodedBatch) -> None:
        """Check and lay out a group. Jobs of damaged images are removed and reported as failures."""
        clock, fetching = Clock(), Clock()
        while group.jobs:
            own = [heads[group.field_number, job.position] for job in group.jobs]
            tiles = self._tiles(own)
            fetching = tiles.clock
            try:
                prepare(group, tiles, staging, pin=self._transfer.pins_staging)
                fetching = tiles.clock
                break
            except HeadraceError as error:
                bad = damaged(group, [self._tiles([image]) for image in own]) or {error.index or 0: error}
            for number, damage in bad.items():
                message = str(damage).partition(": ")[2]  # without its number in the group
                position = group.jobs[number].position
                result.failures.append((position, group.field_number, 0, type(damage).__name__, message))
            group.jobs = [job for number, job in enumerate(group.jobs) if number not in bad]
        clock.stop()
        forms = [job.format for job in group.jobs]
        cpu_seconds = max(clock.cpu_seconds - fetching.own_cpu_seconds, 0.0)
        self.figures.count(forms, "images", [1] * len(forms))
        self.figures.spread(forms, decode_seconds=max(clock.seconds - fetching.seconds, 0.0), cpu_seconds=cpu_seconds)
        self.figures.own_cpu_seconds += cpu_seconds

    def _tiles(self, images: Sequence[ImageHead]) -> StoredTiles:
        return StoredTiles(images, self.images, self.figures)

    def _rest(
        self, request: BatchRequest, number: int, staging: Staging, result: DecodedBatch, check: Check
    ) -> list[Stacked]:
        """Wait for the images of a field that the CPU decodes, and lay them out."""
        batch = request.rest[number]
        if batch is None:
            return []
        while not batch.wait(_WAIT_SECONDS):
            check()
        positions = request.plans[number].rest.tolist()
        failed = {at: (number, rendition, kind, message) for at, _, rendition, kind, message in batch.failures()}
        result.failures += [(positions[at], *failure) for at, failure in failed.items()]
        [stack] = batch.take()
        stacks = []
        for places, array in _arrays(stack, positions, request.views):
            index, piece = staging.put(np.array(places, np.int64)), staging.put(array)
            stacks.append(Stacked(places, index, piece, getattr(torch, array.dtype.name), array.shape))
        return stacks

    def _decode(self, groups: Sequence[Group], staging: Staging, result: DecodedBatch) -> list[tuple[int, Made]]:
        made = []
        status = torch.zeros(sum(len(group.jobs) for group in groups), dtype=torch.int32, device=self._device)
        begin = 0
        for group in groups:
            own = status[begin : begin + len(group.jobs)]
            begin += len(group.jobs)
            result.owners += [(job.position, group.field_number) for job in group.jobs]
            made += [(group.field_number, each) for each in run(group, staging, own)]
        streams = self._transfer.pins_staging
        result.status = torch.empty(len(status), dtype=torch.int32, pin_memory=streams)
        result.status.copy_(status, non_blocking=streams)
        return made

    def _assembled(
        self, parts: Sequence[Made], request: BatchRequest, kind: tuple[tuple[int, ...], torch.dtype] | None
    ) -> Any:
        """Return a field as one tensor if all samples have one shape and dtype, else as a list.

        Failed samples are uninitialized in a tensor and None in a list.
        """
        n, count = request.samples * request.views, request.views
        if kind is None:
            views: list[Any] = [None] * n
            for places, _, pixels in parts:
                for place, view in zip(places, pixels, strict=True):
                    views[place] = view.contiguous()
            return views if count == 1 else [views[at : at + count] for at in range(0, n, count)]
        shape, dtype = kind
        if len(parts) == 1 and list(parts[0][0]) == list(range(n)):
            whole = parts[0][2].contiguous()
        else:
            whole = torch.empty((n, *shape), dtype=dtype, device=self._device)
            for _, index, pixels in parts:
                as_copyable(whole).index_copy_(0, index, as_copyable(pixels))
        return whole if count == 1 else whole.view(request.samples, count, *shape)


def _arrays(stack: Any, positions: list[int], views: int) -> list[tuple[list[int], Any]]:
    """Return the engine's result as (places, array [n, …]); samples that failed may be missing."""
    if not isinstance(stack, list):
        places = [position * views + view for position in positions for view in range(views)]
        return [(places, stack.reshape(len(places), *stack.shape[1 if views == 1 else 2 :]))]
    found = []
    for position, sample in zip(positions, stack, strict=True):
        for view, array in enumerate(sample if isinstance(sample, list) else [sample]):
            if array is not None:
                found.append(([position * views + view], array[None]))
    return found


def _on_device(stack: Stacked, staging: Staging) -> Made:
    index = staging.tensor(stack.place_index, torch.int64, (len(stack.places),))
    return stack.places, index, staging.tensor(stack.piece, stack.dtype, stack.shape)


def _common_kind(
    request: BatchRequest, number: int, stacks: Sequence[Stacked]
) -> tuple[tuple[int, ...], torch.dtype] | None:
    """Return shape and dtype of all views of a field, including failed ones; None if they differ or are unknown."""
    plan = request.plans[number]
    kinds = {kind_of(job, plan.ending) for job in plan.jobs}
    kinds |= {(each.shape[1:], each.dtype) for each in stacks}
    known = len(plan.jobs) + sum(len(each.places) for each in stacks)
    return kinds.pop() if len(kinds) == 1 and known == request.samples * request.views else None
