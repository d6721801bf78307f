# SPDX-License-Identifier: Apache-2.0
"""The stages of a folder of images after the reading: decode, transform, batch, each alone with its input in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.profiling._images import Images
from headrace.profiling._measurements import Rate, Stage
from headrace.profiling._ours import describe_transforms
from headrace.profiling._rates import pace_of, scaling_of
from headrace.profiling._raw import decoded, stack, transformed
from headrace.transforms import Compiled

# Decoded images that are held for the transforms; pixels are many times the size of files.
MOST_PIXEL_BYTES = 256 << 20


def decode_stage(images: Images, compiled: Compiled, *, cores: Sequence[int], seconds: float) -> Stage:
    """Decode whole images, as must be done where the crop is not known beforehand."""
    rates, cpu = scaling_of(
        lambda number: decoded(images.contents[number], compiled), len(images), cores=cores, seconds=seconds
    )
    return Stage(
        name="decode", rates=rates, cpu_seconds=cpu, n_bytes=images.pixel_bytes, detail=", ".join(images.formats)
    )


def transform_stage(images: Images, compiled: Compiled, *, cores: Sequence[int], seconds: float) -> Stage:
    """Put decoded images through the transforms, the user's functions included."""
    pixels = _some_pixels(images, compiled)
    rates, cpu = scaling_of(
        lambda number: transformed(pixels[number], compiled, number), len(pixels), cores=cores, seconds=seconds
    )
    return Stage(
        name="transform", rates=rates, cpu_seconds=cpu, detail=", ".join(describe_transforms(compiled)) or "copy"
    )


def batch_stage(images: Images, compiled: Compiled, *, batch_size: int, seconds: float) -> Stage:
    """Stack samples, which the trainer's own thread does when it asks for the batch."""
    pixels = _some_pixels(images, compiled)[:batch_size]
    samples = [transformed(image, compiled, number) for number, image in enumerate(pixels)]
    batch = [samples[number % len(samples)] for number in range(batch_size)]
    pace = pace_of(lambda _: stack(batch), 1, seconds=seconds)
    return Stage(
        name="batch",
        place="trainer",
        rates=(Rate(cores=1, rate=pace.rate * batch_size),),
        cpu_seconds=pace.cpu_seconds / batch_size,
        detail="stack",
    )


def _some_pixels(images: Images, compiled: Compiled) -> list[Any]:
    pixels: list[Any] = []
    held = 0
    for content in images.contents:
        pixels.append(decoded(content, compiled))
        held += pixels[-1].nbytes
        if held >= MOST_PIXEL_BYTES:
            break
    return pixels
