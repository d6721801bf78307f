# SPDX-License-Identifier: Apache-2.0
"""`headrace.samplers`: which samples each batch of an epoch has, for `headrace.Loader(dataset, sampler=…)`.

`Buckets`, `ClassBalanced`, `PerClass`, `Grouped` and `Repeated`; and `Sampler`, `OpenSampler`, `EpochRequest`,
`EpochSamples` and `copy_of` for those of your own.
"""

from headrace.loader.sampling import (
    Buckets,
    ClassBalanced,
    EpochRequest,
    EpochSamples,
    Grouped,
    OpenSampler,
    PerClass,
    Repeated,
    Sampler,
    copy_of,
)

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
