# SPDX-License-Identifier: Apache-2.0
"""Augmentations as data: a list of small immutable values that C++ runs fused, straight into the batch.

    train = [RandomResizedCrop(224), HorizontalFlip(), Normalize(mean, std)]
    evaluate = [Resize(256), CenterCrop(224), Normalize(mean, std)]
    loader = headrace.Loader(path, batch_size=256, shuffle=True, transform=train)

They mean what torchvision's transforms of the same name mean. Every random choice is drawn from (seed, epoch, sample,
operation, view) and nothing else, so that any machine at any time makes the same picture. Masks and boxes of a sample
go the way of its image: masks without interpolation and untouched by colour, boxes clipped to what is left.

    geometry    Resize, CenterCrop, RandomCrop, RandomResizedCrop, HorizontalFlip, VerticalFlip, Pad
    colour      ColorJitter, Grayscale
    at the end  Normalize, the last of the declarative ones
    views       Views(n, [...]) makes n augmented views of each sample, and stands alone
    Python      PerSample(fn) and PerBatch(fn) call anything; they come last, and a bare callable is a PerSample

Put crops and resizes first: a crop that comes first is all that is decoded, and colours are cheaper on few pixels.
"""

from headrace.transforms._color import ColorJitter, Grayscale, Normalize
from headrace.transforms._compile import Compiled, compile  # noqa: A004
from headrace.transforms._composition import PerBatch, PerSample, Views
from headrace.transforms._geometry import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from headrace.transforms._json import from_json
from headrace.transforms._recipe import Recipe
from headrace.transforms._transform import Transform

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compiled",
    "Grayscale",
    "HorizontalFlip",
    "Normalize",
    "Pad",
    "PerBatch",
    "PerSample",
    "RandomCrop",
    "RandomResizedCrop",
    "Recipe",
    "Resize",
    "Transform",
    "VerticalFlip",
    "Views",
    "compile",
    "from_json",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
