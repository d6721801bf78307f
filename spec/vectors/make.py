# SPDX-License-Identifier: Apache-2.0
"""Write the test vectors and their manifest: `python spec/vectors/make.py`, after a change of the format only."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import decoder  # noqa: E402 - the spec is no package: its files are found beside this one
import invalid_cases  # noqa: E402
import valid_cases  # noqa: E402

SEED = 20260101


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def valid_vectors() -> tuple[dict[str, bytes], dict[str, dict[str, Any]]]:
    files, entries = {}, {}
    for name, data, pixels in valid_cases.cases(np.random.default_rng(SEED)):
        decoded = decoder.decode(data)
        if name in files or (pixels is not None and not np.array_equal(decoded, pixels)):
            raise SystemExit(f"{name}: the name is taken or the oracle does not return the pixels that were written")
        files[name] = data
        entries[name] = {
            "file_sha256": sha256(data),
            "pixels_sha256": sha256(np.ascontiguousarray(decoded, decoded.dtype.newbyteorder("<")).tobytes()),
            "dtype": decoded.dtype.name,
            "shape": list(decoded.shape),
        }
    return files, entries


def invalid_vectors() -> tuple[dict[str, bytes], dict[str, dict[str, Any]]]:
    files, entries = {}, {}
    for case in invalid_cases.cases():
        if case.name in files:
            raise SystemExit(f"{case.name}: the name is taken")
        files[case.name] = case.data
        entries[case.name] = {
            "file_sha256": sha256(case.data),
            "error": case.error,
            "why": case.why,
            "oracle_says": case.says,
        }
    return files, entries


def main() -> None:
    manifest: dict[str, Any] = {"format_version": 1, "seed": SEED}
    for folder, (files, entries) in (("valid", valid_vectors()), ("invalid", invalid_vectors())):
        manifest[folder] = entries
        (HERE / folder).mkdir(exist_ok=True)
        for stale in (HERE / folder).glob("*.hri"):
            stale.unlink()
        for name, data in files.items():
            (HERE / folder / f"{name}.hri").write_bytes(data)
        print(f"{folder}: {len(files)} files, {sum(map(len, files.values()))} bytes")
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
