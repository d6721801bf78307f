# SPDX-License-Identifier: Apache-2.0
"""Put the sources of libdeflate and libjpeg-turbo into a folder, where CMake looks for them.

    python cpp/third_party/fetch.py [FOLDER]

They come out of source distributions on the Python package index, so that a build needs no other server. The index is
the one that pip is configured to use. Versions and checksums are pinned here; nothing is run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """A library and the source distribution that contains it."""

    name: str
    distribution: str
    version: str
    sha256: str
    folder: str
    """Where the library is inside the distribution."""


LIBRARIES = (
    Library(
        name="libdeflate",
        distribution="deflate",
        version="0.9.0",
        sha256="962e0a6f1ea3a94b900a8ea0ce138fa92bfcbafda5b86367104a259ffcd3462b",
        folder="deflate-0.9.0/libdeflate",
    ),
    Library(
        name="libjpeg-turbo",
        distribution="simplejpeg",
        version="1.9.0",
        sha256="5ac7d9489eeb812c2e7ea5c283994a29d9fefdfe5ed7b86c09d485e0dd366689",
        folder="simplejpeg-1.9.0/lib/libjpeg-turbo-3.1.2",
    ),
)


def main() -> None:
    destination = Path(sys.argv[1] if len(sys.argv) > 1 else "build/third_party")
    for library in LIBRARIES:
        fetch(library, destination / library.name)


def fetch(library: Library, folder: Path) -> None:
    """Unpack a library into a folder; do nothing if this version is there."""
    stamp = folder / ".sha256"
    if stamp.exists() and stamp.read_text() == library.sha256:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        archive = download(library, Path(temporary))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != library.sha256:
            sys.exit(f"{archive.name} must have the SHA-256 {library.sha256}; got {found}")
        with tarfile.open(archive) as tar:
            members = [member for member in tar if member.name.startswith(f"{library.folder}/")]
            tar.extractall(temporary, members, filter="data")
        unpacked = Path(temporary, library.folder)
        (unpacked / ".sha256").write_text(library.sha256)
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
    print(f"{folder}: from {library.distribution} {library.version}")


def download(library: Library, folder: Path) -> Path:
    """Download a source distribution without building it, which `pip download` would do."""
    from unearth import PackageFinder  # noqa: PLC0415 - only needed if something must be downloaded

    finder = PackageFinder(index_urls=configured_indexes(), no_binary=[library.distribution])
    requirement = f"{library.distribution}=={library.version}"
    match = finder.find_best_match(requirement, hashes={"sha256": [library.sha256]}).best
    if match is None:
        sys.exit(f"the package index has no source distribution of {requirement}; is the machine online?")
    finder.download_and_unpack(match.link, folder / "unpacked", download_dir=folder)
    return next(folder.glob("*.tar.gz"))


def configured_indexes() -> list[str]:
    """Return the index that pip is configured to use, or an empty list for the default one."""
    if os.environ.get("PIP_INDEX_URL"):
        return [os.environ["PIP_INDEX_URL"]]
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


if __name__ == "__main__":
    main()
