# SPDX-License-Identifier: Apache-2.0
"""What comes out: the dtype, and the mean and the standard deviation that it is normalised by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headrace.kernels._fields import MAX_CHANNELS

DTYPES = (torch.uint8, torch.uint16, torch.int16, torch.float16, torch.float32)
STORED = DTYPES[:3]


def output_dtype(asked: torch.dtype | str | None, stored: set[torch.dtype], *, normalised: bool) -> torch.dtype:
    """The dtype asked for; else float32 for what is normalised, and that of the images for what is not."""
    if asked is None and normalised:
        return torch.float32
    if asked is None:
        if len(stored) > 1:
            raise ValueError(f"the images have the dtypes {sorted(map(str, stored))}: say which dtype to make of them")
        return next(iter(stored), torch.uint8)
    made = getattr(torch, asked, None) if isinstance(asked, str) else asked
    if made not in DTYPES:
        raise ValueError(f"dtype is {asked!r}; possible are {', '.join(str(each)[6:] for each in DTYPES)}")
    if normalised and not made.is_floating_point:
        raise ValueError(f"what is normalised is float16 or float32, not {asked!r}")
    return made


def normalisation(
    mean: float | Sequence[float] | None, std: float | Sequence[float] | None, channels: set[int]
) -> tuple[list[float], list[float]]:
    """Mean and std, one number or one for each of the channels that come out."""
    if (mean is None) != (std is None):
        raise ValueError("mean and std come together")
    means, stds = _listed(0.0 if mean is None else mean), _listed(1.0 if std is None else std)
    for values in (means, stds):
        if not 1 <= len(values) <= MAX_CHANNELS or (len(values) > 1 and channels - {len(values)}):
            raise ValueError(f"mean or std has {len(values)} channels, and the images have {sorted(channels)}")
    if min(stds) <= 0:
        raise ValueError(f"a std is {min(stds)}; it must be above 0")
    return means, stds


def _listed(values: float | Sequence[float]) -> list[float]:
    return [float(value) for value in values] if isinstance(values, (Sequence, np.ndarray)) else [float(values)]
