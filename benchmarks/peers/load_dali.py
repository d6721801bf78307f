# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DALI on the CPU, over a folder of images; antialiased bilinear.

By default the decoder takes the crop (`image_random_crop`, `image_crop`) and decodes no more than it must, where the
format allows; the variant `plain` decodes the whole image and crops afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pictures
import protocol
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator


@pipeline_def
def pipeline(job: protocol.Job) -> tuple[Any, Any]:
    files, labels = protocol.files_of(job.data)
    encoded, label = fn.readers.file(
        files=files,
        labels=labels,
        random_shuffle=True,
        initial_fill=len(files),
        pad_last_batch=True,
        seed=job.seed,
        name="files",
    )
    image = decoded_plainly(encoded, job) if job.variant == "plain" else decoded_in_part(encoded, job)
    image = fn.crop_mirror_normalize(
        image,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255 * value for value in protocol.MEAN],
        std=[255 * value for value in protocol.STD],
    )
    return image, label


def decoded_in_part(encoded: Any, job: protocol.Job) -> Any:
    if job.crop == "random-resized":
        image = fn.decoders.image_random_crop(
            encoded, random_area=pictures.AREA, random_aspect_ratio=pictures.RATIO, num_attempts=10
        )
        return fn.resize(image, size=(job.size, job.size), antialias=True)
    return fn.decoders.image_crop(encoded, crop=(job.size, job.size), **position(job))


def decoded_plainly(encoded: Any, job: protocol.Job) -> Any:
    image = fn.decoders.image(encoded)
    if job.crop == "random-resized":
        return fn.random_resized_crop(
            image,
            size=(job.size, job.size),
            random_area=pictures.AREA,
            random_aspect_ratio=pictures.RATIO,
            num_attempts=10,
            antialias=True,
        )
    return fn.crop(image, crop=(job.size, job.size), **position(job))


def position(job: protocol.Job) -> dict[str, Any]:
    if job.crop == "center":
        return {}
    return {"crop_pos_x": fn.random.uniform(range=(0, 1)), "crop_pos_y": fn.random.uniform(range=(0, 1))}


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    pipe = pipeline(job, batch_size=job.batch_size, num_threads=job.workers, device_id=None, seed=job.seed)
    loader = DALIGenericIterator(
        pipe, ["image", "label"], reader_name="files", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True
    )
    for _ in range(job.epochs):
        yield ((batch["image"], batch["label"]) for (batch,) in loader)


if __name__ == "__main__":
    protocol.main(load, libraries=("nvidia-dali-cuda120", "torch"))
