# SPDX-License-Identifier: Apache-2.0
"""Datasets: open, read and verify them; the index, the shards and `dataset.json` (spec/dataset.md)."""

from headrace.records._dataset import Dataset, open_dataset
from headrace.records._extract import extract
from headrace.records._shared import EpochCounter
from headrace.records._verify import Problem, VerifyReport, verify
from headrace.records.manifest import Manifest
from headrace.records.plan import hash64, load_plan
from headrace.records.rendition import Rendition
from headrace.records.schema import Boxes

__all__ = [
    "Boxes",
    "Dataset",
    "EpochCounter",
    "Manifest",
    "Problem",
    "Rendition",
    "VerifyReport",
    "extract",
    "hash64",
    "load_plan",
    "open_dataset",
    "verify",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
