# SPDX-License-Identifier: Apache-2.0
"""The open files of a dataset in this process, in a local folder or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from headrace.records.index.gather import Places
from headrace.records.index.reading import Index
from headrace.records.manifest import Manifest
from headrace.records.shards.local import ShardFiles
from headrace.records.shards.remote import RemoteDataset, RemoteShards
from headrace.records.versions import split_address
from headrace.storage import Objects, is_url


class DatasetFiles:
    """The files of a dataset, shared by all views of it."""

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None, number: int | None = None) -> None:
        """Open a version: the one with this number, or that of the location, or the newest."""
        remote = RemoteDataset(location, storage_options) if is_url(location) else None
        folder, named = split_address(location) if remote is None else (remote.folder, None)
        self.folder = folder
        """The folder of the dataset, or of the local copy of its index."""
        self.objects: Objects | None = None if remote is None else remote.objects
        self.manifest = Manifest.load(self.folder, number or named)
        self.index = Index(self.folder, self.manifest)
        self.shards: ShardFiles | RemoteShards = (
            ShardFiles(self.folder, self.manifest.shards, self.manifest.check_current)
            if remote is None
            else remote.shards
        )
        self.fingerprint = self.manifest.fingerprint

    @cached_property
    def places(self) -> Places:
        return Places(self.index, self.manifest)
