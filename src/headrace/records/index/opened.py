# SPDX-License-Identifier: Apache-2.0
"""The open files of a version of a dataset: its manifest, index and shards."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from headrace.records.index.gather import Places
from headrace.records.index.reading import Index
from headrace.records.manifest import Manifest
from headrace.records.shards import ShardFiles


class OpenFiles:
    """The open files of a dataset in this process, shared by all views of it."""

    def __init__(self, folder: Path, number: int | None) -> None:
        self.manifest = Manifest.load(folder, number)
        self.index = Index(folder, self.manifest)
        self.shards = ShardFiles(folder, self.manifest.shards, self.manifest.check_current)
        self.fingerprint = self.manifest.fingerprint

    @cached_property
    def places(self) -> Places:
        return Places(self.index, self.manifest)
