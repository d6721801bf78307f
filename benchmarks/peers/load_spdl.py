# SPDX-License-Identifier: Apache-2.0
"""SPDL over a folder of images, in threads: decoded, cropped and resized by its FFmpeg, whose bilinear antialiases.

The variant `cv2` decodes with OpenCV instead, and does not antialias.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pictures
import protocol
import spdl.io
from spdl.pipeline import PipelineBuilder


def with_ffmpeg(crop: str, size: int) -> pictures.Step:
    def step(contents: bytes, rng: np.random.Generator) -> pictures.Pixels:
        packets = spdl.io.demux_image(contents)
        left, top, right, bottom = pictures.box(crop, size, packets.height, packets.width, rng)
        filters = [f"crop={right - left}:{bottom - top}:{left}:{top}:exact=1"]
        if (right - left, bottom - top) != (size, size):
            filters.append(f"scale={size}:{size}:flags=bilinear")
        frames = spdl.io.decode_packets(packets, filter_desc=",".join([*filters, "format=pix_fmts=rgb24"]))
        return pictures.normalise(spdl.io.to_numpy(spdl.io.convert_frames(frames)))

    return step


Sample = tuple[pictures.Pixels, int]


def stack(samples: list[Sample]) -> tuple[pictures.Pixels, list[int]]:
    images, labels = zip(*samples, strict=True)
    return np.stack(images), list(labels)


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    files, labels = protocol.files_of(job.data)
    step = (pictures.with_cv2 if job.variant == "cv2" else with_ffmpeg)(job.crop, job.size)

    def epoch(number: int) -> protocol.Batches:
        def sample(index: int) -> Sample:
            rng = np.random.default_rng((job.seed, number, index))
            return step(Path(files[index]).read_bytes(), rng), labels[index]

        order = np.random.default_rng((job.seed, number)).permutation(len(files))
        pipeline = (
            PipelineBuilder()
            .add_source(order.tolist())
            .pipe(sample, concurrency=job.workers)
            .aggregate(job.batch_size)
            .pipe(stack)
            .add_sink(2)
            .build(num_threads=job.workers)
        )
        with pipeline.auto_stop():
            yield from pipeline

    yield from map(epoch, range(job.epochs))


if __name__ == "__main__":
    protocol.main(load, libraries=("spdl", "spdl-io", "numpy"))
