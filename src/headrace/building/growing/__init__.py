# SPDX-License-Identifier: Apache-2.0
"""New versions of datasets: add, drop, relabel; their log; garbage; and merging (spec/dataset.md §10)."""

from headrace.building.growing._add import add
from headrace.building.growing._collect import GarbageReport, collect_garbage
from headrace.building.growing._edit import drop, relabel
from headrace.building.growing._log import VersionEntry, log
from headrace.building.growing._merge import merge
from headrace.building.growing._publish import VersionReport

__all__ = [
    "GarbageReport",
    "VersionEntry",
    "VersionReport",
    "add",
    "collect_garbage",
    "drop",
    "log",
    "merge",
    "relabel",
]
