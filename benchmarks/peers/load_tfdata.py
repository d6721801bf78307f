# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's tf.data over a folder of images; of a JPEG only the crop is decoded. Antialiased bilinear.

The variant `no-antialias` leaves antialiasing out, which is TensorFlow's default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import pictures
import protocol
import tensorflow as tf


def crop_box(job: protocol.Job, shape: Any, seed: Any) -> tuple[Any, Any]:
    """Top left corner and size of the crop."""
    if job.crop == "random-resized":
        whole = tf.zeros((1, 1, 4)) + tf.constant([0.0, 0.0, 1.0, 1.0])
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            shape,
            whole,
            seed=seed,
            min_object_covered=0.0,
            area_range=pictures.AREA,
            aspect_ratio_range=pictures.RATIO,
            max_attempts=10,
        )
        return begin[:2], size[:2]
    size = tf.constant([job.size, job.size])
    free = shape[:2] - size
    if job.crop == "center":
        return free // 2, size
    return tf.cast(tf.random.stateless_uniform((2,), seed) * tf.cast(free + 1, tf.float32), tf.int32), size


def step(job: protocol.Job, path: Any, label: Any, seed: Any, *, jpeg: bool) -> tuple[Any, Any]:
    contents = tf.io.read_file(path)
    if jpeg:
        begin, size = crop_box(job, tf.image.extract_jpeg_shape(contents), seed)
        image = tf.io.decode_and_crop_jpeg(contents, tf.concat([begin, size], 0), channels=3)
    else:
        whole = tf.io.decode_png(contents, channels=3)
        begin, size = crop_box(job, tf.shape(whole), seed)
        image = tf.slice(whole, tf.concat([begin, [0]], 0), tf.concat([size, [3]], 0))
    if job.crop == "random-resized":
        image = tf.image.resize(image, (job.size, job.size), antialias=job.variant != "no-antialias")
    image = tf.cast(image, tf.float32) * (1 / 255 / tf.constant(protocol.STD)) - (
        tf.constant(protocol.MEAN) / tf.constant(protocol.STD)
    )
    return tf.ensure_shape(tf.transpose(image, (2, 0, 1)), (3, job.size, job.size)), label


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(job.workers)
    files, labels = protocol.files_of(job.data)
    jpeg = files[0].endswith(".jpg")
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    samples = tf.data.Dataset.from_tensor_slices((files, labels)).shuffle(len(files), seed=job.seed)
    seeds = tf.data.Dataset.random(seed=job.seed, rerandomize_each_iteration=True).batch(2)
    dataset = (
        tf.data.Dataset.zip((samples, seeds))
        .map(lambda sample, seed: step(job, *sample, seed, jpeg=jpeg), num_parallel_calls=job.workers)
        .batch(job.batch_size)
        .prefetch(2)
        .with_options(options)
    )
    for _ in range(job.epochs):
        yield dataset


if __name__ == "__main__":
    protocol.main(load, libraries=("tensorflow-cpu", "numpy"))
