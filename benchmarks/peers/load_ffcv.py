# SPDX-License-Identifier: Apache-2.0
"""FFCV over a `.beton`, written with raw pixels or JPEG; its resize averages areas, which antialiases.

Its images are channels-last in memory. So that all peers give the same, they are made CHW; the variant `channels-last`
leaves them. It has no random crop without resize: that is a random-resized crop of one area and ratio. All images of
such a case have one size, which makes it the same.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pictures
import protocol
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv.loader import Loader, OrderOption
from ffcv.pipeline.operation import Operation
from ffcv.reader import Reader
from ffcv.transforms import NormalizeImage, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

FIELDS = {"image": RGBImageField}  # what it was written as does not matter for reading

Sample = tuple[npt.NDArray[np.uint8], int]


class Folder:
    """Class folders as FFCV's writer wants them: pixels, or the files as they are."""

    def __init__(self, folder: Path, *, keep: bool) -> None:
        self.files, self.labels = protocol.files_of(folder)
        self.keep = keep

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        path = self.files[index]
        image = np.fromfile(path, np.uint8) if self.keep else np.asarray(Image.open(path).convert("RGB"))
        return image, self.labels[index]


class Arrays:
    """Images and labels that are arrays already."""

    def __init__(self, folder: Path) -> None:
        self.images, self.labels = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("images", "labels"))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        return np.asarray(self.images[index]), int(self.labels[index])


class KeptJpeg(RGBImageField):
    """FFCV's own field encodes every JPEG again; this one stores the file's bytes, so all peers decode the same."""

    def encode(self, destination: Any, contents: npt.NDArray[np.uint8], malloc: Any) -> None:
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["width"], destination["height"] = Image.open(io.BytesIO(contents.tobytes())).size
        destination["data_ptr"], storage = malloc(contents.nbytes)
        storage[:] = contents


def prepare(source: Path, dest: Path, variant: str, workers: int) -> None:
    """Store the images as `raw` pixels, or as the `jpg` files that they are."""
    keep = variant == "jpg"
    samples = Arrays(source) if (source / "images.npy").exists() else Folder(source, keep=keep)
    image = KeptJpeg() if keep else RGBImageField(write_mode="raw")
    DatasetWriter(str(dest), {"image": image, "label": IntField()}, num_workers=workers).from_indexed_dataset(samples)


def decoder(job: protocol.Job) -> Operation:
    target = (job.size, job.size)
    if job.crop == "random-resized":
        return RandomResizedCropRGBImageDecoder(target, scale=pictures.AREA, ratio=pictures.RATIO)
    stored = Reader(str(job.data), FIELDS).metadata["f0"]
    height, width = int(stored["height"].max()), int(stored["width"].max())
    if (height, width) == target:
        return SimpleRGBImageDecoder()
    if job.crop == "center":
        return CenterCropRGBImageDecoder(target, ratio=job.size / min(height, width))
    share = job.size**2 / (height * width)
    return RandomResizedCropRGBImageDecoder(target, scale=(share, share), ratio=(1.0, 1.0))


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    np.random.seed(job.seed)  # noqa: NPY002 - FFCV draws its crops from it
    mean, std = 255 * np.array(protocol.MEAN), 255 * np.array(protocol.STD)
    image = [
        decoder(job),
        NormalizeImage(mean, std, np.float32),
        ToTensor(),
        ToTorchImage(channels_last=job.variant == "channels-last"),
    ]
    loader = Loader(
        str(job.data),
        batch_size=job.batch_size,
        num_workers=job.workers,
        order=OrderOption.RANDOM,
        seed=job.seed,
        drop_last=False,
        custom_fields=FIELDS,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    for _ in range(job.epochs):
        yield loader


if __name__ == "__main__":
    torch.set_num_threads(1)
    protocol.main(load, libraries=("ffcv", "torch", "numpy", "numba"), prepare=prepare)
