# SPDX-License-Identifier: Apache-2.0
"""Samplers: which samples each batch of an epoch has. `headrace.samplers` in users' code.

`Buckets`, `ClassBalanced`, `PerClass`, `Grouped` and `Repeated` are passed to `headrace.Loader(dataset, sampler=…)`.
Write others by implementing `Sampler`, `OpenSampler` and `EpochSamples`.
"""

from headrace.loader.sampling._buckets import Buckets
from headrace.loader.sampling._classes import ClassBalanced, Grouped, PerClass, Repeated
from headrace.loader.sampling._protocol import EpochRequest, EpochSamples, OpenSampler, Sampler, copy_of

__all__ = [
    "Buckets",
    "ClassBalanced",
    "EpochRequest",
    "EpochSamples",
    "Grouped",
    "OpenSampler",
    "PerClass",
    "Repeated",
    "Sampler",
    "copy_of",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
