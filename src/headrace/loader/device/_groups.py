# SPDX-License-Identifier: Apache-2.0
"""Groups of jobs that a device does together: one decode per group, whatever the number and sizes of its images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from headrace import kernels
from headrace.errors import HeadraceError
from headrace.loader.device._plan import Ending, FieldPlan, Method, ViewJob, nearest_sources
from headrace.loader.device._staging import Piece, Staging

_MAX_PIXELS = 65535**2  # the size in the index was compared with the file before


@dataclass(slots=True)
class Group:
    """Images of one field that are made by one method."""

    field_number: int
    ending: Ending
    method: Method
    upside_down: bool
    color: str
    jobs: list[ViewJob] = field(default_factory=list)
    prepared: kernels.StagedBatch | None = None
    piece: Piece | None = None
    tables: list[tuple[list[int], Piece, Piece | None]] = field(default_factory=list)
    """For each shape of results: the numbers of its jobs, their places and, for "nearest", the samples to take."""

    @property
    def shapes(self) -> dict[tuple[int, int, int], list[int]]:
        """The numbers of the jobs of each shape of results."""
        found: dict[tuple[int, int, int], list[int]] = {}
        for number, job in enumerate(self.jobs):
            found.setdefault(job.shape, []).append(number)
        return found


def make_groups(plans: Sequence[FieldPlan]) -> list[Group]:
    """Group the jobs that can be done together, field by field."""
    groups: dict[Any, Group] = {}
    for number, plan in enumerate(plans):
        converts = plan.ending.dtype is not None or plan.ending.mean is not None
        for job in plan.jobs:
            upside_down = job.upside_down and job.method != "nearest"
            stored = "any" if converts and job.method == "cut" else job.stored
            key = number, job.method, upside_down, stored, job.color
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(number, plan.ending, job.method, upside_down, job.color)
            group.jobs.append(job)
    return list(groups.values())


def prepare(group: Group, images: kernels.TileSource, staging: Staging, *, pin: bool) -> None:
    """Lay out a group for the copy. `images` has the encoded image of each job.

    Raises HeadraceError if an image is damaged; the error's `index` is its number.
    """
    ending = group.ending
    cuts = group.method == "cut"
    out = _out(group, "meta") if cuts and len(group.shapes) == 1 else None
    prepared = kernels.stage_batch(
        images,
        regions=_regions(group.jobs),
        dtype=ending.dtype if cuts else None,
        mean=ending.mean if cuts else None,
        std=ending.std if cuts else None,
        flips=[job.mirrored for job in group.jobs] if cuts else None,
        color=group.color,
        out=out,
        buffer=staging.room,
        pin=pin,
        max_pixels=_MAX_PIXELS,
    )
    group.prepared, group.piece = prepared, staging.took(prepared.buffer)
    for numbers in group.shapes.values():
        places = np.array([group.jobs[number].place for number in numbers])
        samples = staging.put(_samples_to_take(group, numbers)) if group.method == "nearest" else None
        group.tables.append((numbers, staging.put(places), samples))


def damaged(group: Group, images: Sequence[kernels.TileSource]) -> dict[int, HeadraceError]:
    """Return the errors of a group's damaged images by their numbers. `images` has one source per image."""
    found: dict[int, HeadraceError] = {}
    for number, (job, image) in enumerate(zip(group.jobs, images, strict=True)):
        try:
            kernels.stage_batch(image, regions=_regions([job]), max_pixels=_MAX_PIXELS)
        except HeadraceError as error:
            found[number] = error
    return found


def _regions(jobs: Sequence[ViewJob]) -> npt.NDArray[np.int64]:
    return np.array([job.region for job in jobs], np.int64)


Made: TypeAlias = tuple[Sequence[int], torch.Tensor, torch.Tensor]
"""(places in the batch, the same on the device, pixels [n, …] in the final layout)."""


def run(group: Group, staging: Staging, status: torch.Tensor) -> Iterable[Made]:
    """Decode and resize a group whose bytes are on the device. Does not wait."""
    assert group.prepared is not None, "prepared first"
    assert group.piece is not None, "prepared first"
    buffer = staging.bytes_of(group.piece)
    even = len(group.shapes) == 1
    out = _out(group, buffer.device) if group.method == "cut" and even else None
    images = kernels.decode_staged(group.prepared, buffer, status=status, out=out)
    for numbers, places, samples in group.tables:
        jobs = [group.jobs[number] for number in numbers]
        if group.method == "cut":
            made = images if isinstance(images, torch.Tensor) else _stacked([images[number] for number in numbers])
        elif group.method == "bilinear":
            made = _resized(group.ending, [images[number] for number in numbers], jobs)
        else:
            assert samples is not None, "prepared first"
            made = _taken(images, staging, samples, jobs)
        on_device = staging.tensor(places, torch.int64, (len(jobs),))
        yield [job.place for job in jobs], on_device, _final(group, made)


def kind_of(job: ViewJob, ending: Ending) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and dtype of the result of a job."""
    channels, height, width = job.shape
    name = ending.dtype or ("float32" if ending.mean is not None else job.stored)
    if ending.mask and channels == 1:
        sides: tuple[int, ...] = height, width
    else:
        sides = (height, width, channels) if ending.layout == "HWC" else job.shape
    return sides, getattr(torch, name)


def _out(group: Group, device: Any) -> torch.Tensor:
    """Return memory for the results of a group of one shape, as [N, C, H, W] in the final layout."""
    ending, n = group.ending, len(group.jobs)
    channels, height, width = group.jobs[0].shape
    dtype = kind_of(group.jobs[0], ending)[1]
    if ending.layout == "HWC":
        return torch.empty((n, height, width, channels), dtype=dtype, device=device).permute(0, 3, 1, 2)
    return torch.empty((n, channels, height, width), dtype=dtype, device=device)


def _stacked(images: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([as_copyable(image) for image in images]).view(images[0].dtype)


def _resized(ending: Ending, images: Sequence[torch.Tensor], jobs: Sequence[ViewJob]) -> torch.Tensor:
    origins = [(job.region[0] - job.corner[0], job.region[1] - job.corner[1]) for job in jobs]
    return kernels.resize_batch(
        images,
        [kernels.ResizeWindow(*job.window, origin=origin) for job, origin in zip(jobs, origins, strict=True)],
        dtype=ending.dtype,
        mean=ending.mean,
        std=ending.std,
        flips=[job.mirrored for job in jobs],
    )


def _samples_to_take(group: Group, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return for each image its start, the size of a channel, and the offsets of each row and column, [n, …]."""
    sizes = [math.prod(shape) for shape in group.prepared.shapes] if group.prepared else []
    begins = np.cumsum([0, *sizes])
    tables = []
    for number in numbers:
        job = group.jobs[number]
        rows, columns = (nearest_sources(*(part[axis] for part in job.window)) for axis in (0, 1))
        height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
        row_starts, column_starts = (rows - rows[0]) * width, columns - columns[0]
        row_starts = row_starts[::-1] if job.upside_down else row_starts
        column_starts = column_starts[::-1] if job.mirrored else column_starts
        tables.append(np.concatenate([[begins[number], height * width], row_starts, column_starts]))
    return np.stack(tables).astype(np.int64)


def _taken(images: Any, staging: Staging, samples: Piece, jobs: Sequence[ViewJob]) -> torch.Tensor:
    channels, height, width = jobs[0].shape
    table = staging.tensor(samples, torch.int64, (len(jobs), 2 + height + width))
    begin, plane, rows, columns = torch.split(table, [1, 1, height, width], dim=1)
    channel = torch.arange(channels, device=table.device)
    start = begin[:, :, None, None] + plane[:, :, None, None] * channel[None, :, None, None]
    index = start + rows[:, None, :, None] + columns[:, None, None, :]  # [n, C, H, W]
    first = images[0]  # all images are in one memory, one after the other
    flat = as_copyable(first.as_strided((first.untyped_storage().nbytes() // first.element_size(),), (1,), 0))
    return flat[index].view(first.dtype)


def _final(group: Group, made: torch.Tensor) -> torch.Tensor:
    """Convert [N, C, H, W] to the final form: flipped, masks without their single channel, in the final layout."""
    if group.upside_down:
        made = as_copyable(made).flip(2).view(made.dtype)
    if group.ending.mask and made.shape[1] == 1:
        return made[:, 0]
    return made.permute(0, 2, 3, 1) if group.ending.layout == "HWC" else made


def as_copyable(tensor: torch.Tensor) -> torch.Tensor:
    """View uint16 as int16: PyTorch has few operations for uint16."""
    return tensor.view(torch.int16) if tensor.dtype == torch.uint16 else tensor
