# SPDX-License-Identifier: Apache-2.0
"""Where the tests decode: on the accelerator if there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import os

import torch

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
if not HAS_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton's functions are made

from headrace.kernels import has_triton  # noqa: E402

BACKENDS = ["reference", *(["triton"] if has_triton() else [])]
