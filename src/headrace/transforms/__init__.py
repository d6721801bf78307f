# SPDX-License-Identifier: Apache-2.0
"""Declarative augmentations: immutable values that the C++ core runs in one pass, directly into the batch.

    train = [RandomResizedCrop(224), HorizontalFlip(), Normalize(mean, std)]
    evaluate = [Resize(256), CenterCrop(224), Normalize(mean, std)]
    loader = headrace.Loader(path, batch_size=256, shuffle=True, transform=train)

They have the meaning of torchvision's transforms of the same name. Every random choice depends only on (seed, epoch,
sample, operation, view), so every machine makes the same image. Masks and boxes follow their image: masks without
interpolation or color changes, boxes clipped to the visible part.

    geometry    Resize, CenterCrop, RandomCrop, RandomResizedCrop, HorizontalFlip, VerticalFlip, Pad
    warps       RandomRotation, RandomAffine, RandomPerspective, ElasticTransform: all that follow each other are one
                resampling
    sizes       ScaleJitter, RandomShortestSize, Letterbox, RandomZoomOut
    color       ColorJitter, Grayscale
    levels      AutoContrast, Equalize, Invert, Posterize, Solarize, AdjustSharpness, GaussianBlur, GaussianNoise,
                RandomChannelPermutation, JPEG
    policies    AutoAugment, RandAugment, TrivialAugmentWide, AugMix; TimmAugment takes timm's strings
    choice      RandomApply, RandomChoice, OneOf, RandomOrder run other transforms, and may be nested
    last        Normalize, after all transforms above; RandomErasing after it
    batch       MixUp, CutMix, MixUpCutMix: mix the images of a batch and their labels
    views       Views(n, [...]) makes n augmented views of each sample; it is the only entry of its list
                MultiCrop([View(n, [...]), View(m, [...])]) makes groups of views of different sizes, decoding once
    Python      PerSample(fn) and PerBatch(fn) call any function; they come last; a bare callable means PerSample

Each one can be called with one NumPy or PIL image, to look at what it does: `RandomResizedCrop(224)(image, seed=1)`;
`Compose([...])` does so with a list.

Put crops and resizes first: then only the crop is decoded, and color changes run on fewer pixels.
"""

from headrace.transforms._base import Transform
from headrace.transforms._color import ColorJitter, Grayscale, Normalize
from headrace.transforms._compile import Compiled, compile  # noqa: A004
from headrace.transforms._composition import PerBatch, PerSample, Views
from headrace.transforms._control import OneOf, RandomApply, RandomChoice, RandomOrder
from headrace.transforms._erasing import RandomErasing
from headrace.transforms._fit import Letterbox, RandomShortestSize, RandomZoomOut, ScaleJitter
from headrace.transforms._geometry import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from headrace.transforms._multicrop import MultiCrop, View
from headrace.transforms._photometric import (
    JPEG,
    AdjustSharpness,
    AutoContrast,
    Equalize,
    GaussianBlur,
    GaussianNoise,
    Invert,
    Posterize,
    RandomChannelPermutation,
    Solarize,
)
from headrace.transforms._recipe import Recipe, from_json
from headrace.transforms._warp import RandomAffine, RandomPerspective, RandomRotation
from headrace.transforms.elastic import ElasticTransform
from headrace.transforms.looking._single import Compose
from headrace.transforms.mixing import CutMix, MixUp, MixUpCutMix
from headrace.transforms.policies import AugMix, AutoAugment, RandAugment, TimmAugment, TrivialAugmentWide

__all__ = [
    "JPEG",
    "AdjustSharpness",
    "AugMix",
    "AutoAugment",
    "AutoContrast",
    "CenterCrop",
    "ColorJitter",
    "Compiled",
    "Compose",
    "CutMix",
    "ElasticTransform",
    "Equalize",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "HorizontalFlip",
    "Invert",
    "Letterbox",
    "MixUp",
    "MixUpCutMix",
    "MultiCrop",
    "Normalize",
    "OneOf",
    "Pad",
    "PerBatch",
    "PerSample",
    "Posterize",
    "RandAugment",
    "RandomAffine",
    "RandomApply",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomOrder",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomZoomOut",
    "Recipe",
    "Resize",
    "ScaleJitter",
    "Solarize",
    "TimmAugment",
    "Transform",
    "TrivialAugmentWide",
    "VerticalFlip",
    "View",
    "Views",
    "compile",
    "from_json",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
