# SPDX-License-Identifier: Apache-2.0
"""Bilinear resize with antialiasing: one program per rectangle of a result, all images of a batch in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from headrace.kernels._resize import ResizeBatch, ResizeField
from headrace.kernels.backend import sized
from headrace.kernels.finish.triton import FORMS, INT16, UINT8, store_value
from headrace.kernels.tables import SIZES, SLICES

ROWS, COLUMNS, WARPS = sized(8, 64), sized(32, 64), 4

SOURCE = tl.constexpr(int(ResizeField.SOURCE))
STRIDE_C = tl.constexpr(int(ResizeField.STRIDE_C))
STRIDE_Y = tl.constexpr(int(ResizeField.STRIDE_Y))
STRIDE_X = tl.constexpr(int(ResizeField.STRIDE_X))
CHANNELS = tl.constexpr(int(ResizeField.CHANNELS))
HEIGHT = tl.constexpr(int(ResizeField.HEIGHT))
WIDTH = tl.constexpr(int(ResizeField.WIDTH))
ROW_TAPS = tl.constexpr(int(ResizeField.ROWS))
COLUMN_TAPS = tl.constexpr(int(ResizeField.COLUMNS))
OUT = tl.constexpr(int(ResizeField.OUT))
OUT_C = tl.constexpr(int(ResizeField.OUT_C))
OUT_Y = tl.constexpr(int(ResizeField.OUT_Y))
OUT_X = tl.constexpr(int(ResizeField.OUT_X))
FLIP = tl.constexpr(int(ResizeField.FLIP))


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def resize_kernel(
    source, jobs, n_jobs, n_rectangles, first, count, position, step, unit, factors, out,
    SAMPLE: tl.constexpr, FORM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Make ROWS x COLUMNS pixels. SAMPLE and FORM are the sample types of the source and the output."""
    # One grid axis for images and rectangles: the others are limited to 65535, which 4096 x 4096 pixels exceed.
    job = jobs + tl.program_id(0) // n_rectangles
    rectangle = tl.program_id(0) % n_rectangles
    height = tl.load(job + HEIGHT * n_jobs).to(tl.int32)
    width = tl.load(job + WIDTH * n_jobs).to(tl.int32)
    across = (width + COLUMNS - 1) // COLUMNS
    y = rectangle // across * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    x = rectangle % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]  # [1, COLUMNS]
    if rectangle // across * ROWS >= height:
        return
    row_taps = tl.load(job + ROW_TAPS * n_jobs) + y
    column_taps = tl.load(job + COLUMN_TAPS * n_jobs) + x
    rows = tl.load(count + row_taps, mask=y < height, other=0)
    columns = tl.load(count + column_taps, mask=x < width, other=0)
    top = tl.load(first + row_taps, mask=y < height, other=0)
    left = tl.load(first + column_taps, mask=x < width, other=0)
    row_position = tl.load(position + row_taps, mask=y < height, other=0)
    column_position = tl.load(position + column_taps, mask=x < width, other=0)
    row_step = tl.load(step + row_taps, mask=y < height, other=0)
    column_step = tl.load(step + column_taps, mask=x < width, other=0)
    row_unit = tl.load(unit + row_taps, mask=y < height, other=0)
    column_unit = tl.load(unit + column_taps, mask=x < width, other=0)

    stride_y = tl.load(job + STRIDE_Y * n_jobs)
    stride_x = tl.load(job + STRIDE_X * n_jobs)
    flip = tl.load(job + FLIP * n_jobs) > 0
    written = y * tl.load(job + OUT_Y * n_jobs) + tl.where(flip, width - 1 - x, x) * tl.load(job + OUT_X * n_jobs)
    wanted = (y < height) & (x < width)
    for channel in range(tl.load(job + CHANNELS * n_jobs).to(tl.int32)):
        plane = source + tl.load(job + SOURCE * n_jobs) + channel * tl.load(job + STRIDE_C * n_jobs)
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for i in range(tl.max(rows)):
            row_weight = tl.maximum(1 - tl.abs(row_position + i * row_step), 0) * row_unit
            from_row = plane + (top + i) * stride_y
            of_row = tl.zeros((ROWS, COLUMNS), tl.float32)
            for j in range(tl.max(columns)):
                weight = tl.maximum(1 - tl.abs(column_position + j * column_step), 0) * column_unit
                inside = (i < rows) & (j < columns)
                sample = tl.load(from_row + (left + j) * stride_x, mask=inside, other=0)
                of_row += sample.to(tl.float32) * weight
            total += of_row * row_weight
        level = nearest_level(total, SAMPLE)
        at = out + tl.load(job + OUT * n_jobs) + channel * tl.load(job + OUT_C * n_jobs) + written
        store_value(at, level, SAMPLE, factors + channel, wanted, FORM)


@triton.jit
def nearest_level(value, SAMPLE: tl.constexpr):
    """Round to a level, half up, as on the CPU."""
    lowest: tl.constexpr = -32768 if SAMPLE == INT16 else 0
    highest: tl.constexpr = 255 if SAMPLE == UINT8 else (32767 if SAMPLE == INT16 else 65535)
    return tl.minimum(tl.maximum(tl.floor(value + 0.5), lowest), highest).to(tl.int32)


def run(batch: ResizeBatch) -> None:
    """Resize all images of a batch."""
    rectangles = triton.cdiv(batch.max_height, ROWS) * triton.cdiv(batch.max_width, COLUMNS)
    resize_kernel[(batch.jobs.shape[1] * rectangles,)](
        batch.source, batch.jobs, batch.jobs.shape[1], rectangles, batch.first, batch.count, batch.position, batch.step,
        batch.unit, batch.factors, batch.out, SAMPLE=FORMS[batch.source.dtype], FORM=FORMS[batch.out.dtype],
        ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip


assert FORMS[torch.int16] == INT16.value
