# SPDX-License-Identifier: Apache-2.0
"""The loader: batches of a dataset for training, in a fixed order, made by threads that do not hold the GIL."""

from headrace.loader._environment import decoders, devices, libraries
from headrace.loader._iterator import LoaderIterator
from headrace.loader._loader import Loader, compiled_transform, limit_storage, storage_limit
from headrace.loader._patches import Patches, patches
from headrace.loader._pixel_maker import PixelMaker
from headrace.loader.batch._stats import BusySeconds, FormatStats, LoaderStats, SampleError
from headrace.loader.sampling._mixture import Mixture

__all__ = [
    "BusySeconds",
    "FormatStats",
    "Loader",
    "LoaderIterator",
    "LoaderStats",
    "Mixture",
    "Patches",
    "PixelMaker",
    "SampleError",
    "compiled_transform",
    "decoders",
    "devices",
    "libraries",
    "limit_storage",
    "patches",
    "storage_limit",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
