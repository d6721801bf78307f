# SPDX-License-Identifier: Apache-2.0
"""`headrace.log`: the versions of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from headrace.errors import CorruptDataset, UnsupportedDataset
from headrace.records.manifest import Manifest
from headrace.records.versions import address, split_address, version_name, version_numbers


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One version of a dataset: what it changed, and what it has."""

    version: int
    address: str
    """Opens this version."""
    action: str
    """`build`, `add`, `drop` or `relabel`."""
    changed: int
    """Number of samples that were added, dropped or relabeled."""
    samples: int
    shards: int
    n_bytes: int
    """Size of its shards and its index."""
    source: str
    """Name of the source of samples that were added, or the field whose values changed."""
    fingerprint: str
    seconds: float
    """When its file was written, in seconds since 1970. It is that of the file system, not part of the dataset."""
    problem: str = ""
    """Why it cannot be opened, if so; the other figures are then 0."""


def log(dataset: str | PathLike[str]) -> list[VersionEntry]:
    """Return the versions of a dataset, the oldest first. `photos.hr@v3` lists those up to version 3."""
    folder, last = split_address(dataset)
    numbers = [number for number in version_numbers(folder) if last is None or number <= last]
    if not numbers or (last is not None and numbers[-1] != last):
        Manifest.load(folder, last)  # raises FileNotFoundError that says what is there
    entries = []
    for number in numbers:
        written = (folder / version_name(number)).stat().st_mtime
        try:
            manifest = Manifest.load(folder, number)
        except (CorruptDataset, UnsupportedDataset) as error:
            entries.append(
                VersionEntry(number, address(folder, number), "", 0, 0, 0, 0, "", "", written, problem=str(error))
            )
            continue
        change = manifest.change or {"action": "build", "samples": manifest.samples, "source": manifest.source}
        entries.append(
            VersionEntry(
                version=number,
                address=address(folder, number),
                action=change["action"],
                changed=change["samples"],
                samples=manifest.samples,
                shards=len(manifest.shards),
                n_bytes=sum(shard.n_bytes for shard in manifest.shards) + manifest.index_bytes,
                source=str(change.get("source", {}).get("name") or change.get("field") or ""),
                fingerprint=manifest.fingerprint,
                seconds=written,
            )
        )
    return entries
