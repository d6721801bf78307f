# SPDX-License-Identifier: Apache-2.0
"""The files of prepared batches in a rank's folder, from the side that owns them: written, kept count of, used again.

A file that no one wants any more is a slot: the next batch is written over it, under another name, which saves the file
system the freeing and finding of blocks. One slot is kept; more are removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from headrace.offload.exchange._batch_file import BatchFile
from headrace.offload.exchange._batch_writer import BatchWriter
from headrace.offload.exchange._files import is_regular, opened_folder, remove_file
from headrace.offload.exchange._names import TEMPORARY, BatchName, batch_file, batch_of

MAX_ADOPTED = 100_000
"""Files that are looked at in a folder that is taken over."""


class Slots:
    """The batch files of one rank. For one thread."""

    def __init__(self, folder: Path, rank: int, token: str) -> None:
        self._folder = folder
        self._temporary = f".batch.{token}{TEMPORARY}"
        self._writer = BatchWriter()
        self._spare: tuple[BatchName, int] | None = None
        self.held: dict[BatchName, int] = {}
        """The bytes of each batch that is published."""
        self._adopt(rank)
        self.held_bytes = sum(self.held.values())
        """Of all of them; those of the slot, at most one batch, are not counted."""

    def _adopt(self, rank: int) -> None:
        """Take over what an earlier offload worker has published, and remove what it has left half-written."""
        with opened_folder(self._folder, listing=True) as folder, os.scandir(folder) as entries:
            for entry in islice(entries, MAX_ADOPTED):
                name = batch_of(entry.name, rank)
                if name is not None and is_regular(entry):
                    self.held[name] = entry.stat(follow_symlinks=False).st_size
                elif entry.name.startswith(".batch."):
                    remove_file(entry.name, dir_fd=folder)

    def write(self, name: BatchName, content: BatchFile) -> None:
        """Publish a batch: written under another name, synced, renamed. OSError leaves nothing behind."""
        spare, self._spare = self._spare, None
        with opened_folder(self._folder) as folder:
            try:
                if spare is not None:
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(batch_file(spare[0]), self._temporary, src_dir_fd=folder, dst_dir_fd=folder)
                self._writer.write(self._temporary, content, dir_fd=folder)
                os.replace(self._temporary, batch_file(name), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    remove_file(self._temporary, dir_fd=folder)
                raise
        self.held_bytes += content.n_bytes - self.held.get(name, 0)
        self.held[name] = content.n_bytes

    def keep_only(self, wanted: Callable[[BatchName], bool]) -> None:
        """Let go of all batches that nobody wants any more."""
        if self._spare is not None and wanted(self._spare[0]):
            self.held[self._spare[0]] = self._spare[1]
            self.held_bytes += self._spare[1]
            self._spare = None
        for name in [name for name in self.held if not wanted(name)]:
            n_bytes = self.held.pop(name)
            self.held_bytes -= n_bytes
            if self._spare is None:
                self._spare = (name, n_bytes)
            else:
                self._remove(name)

    def drop_spare(self) -> None:
        """Give the slot's room back."""
        if self._spare is not None:
            self._remove(self._spare[0])
            self._spare = None

    def _remove(self, name: BatchName) -> None:
        with contextlib.suppress(OSError), opened_folder(self._folder) as folder:
            remove_file(batch_file(name), dir_fd=folder)
