# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001  # a script, not a package
"""Make the fuzzer's seeds from the spec's vectors, the encoder's files and recipes for pictures.

`make_corpus.py [folder]`. A seed of the codec is a body and a trailer of ten bytes; harness.cpp says what they mean.
Findings that were fixed are kept beside these, under names that begin with `finding-`, and are left alone.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import headrace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from tests.formats import png_files  # noqa: E402

VECTORS = HERE.parents[1] / "spec" / "vectors"

AS_IS, SEAL, REPAIR = range(3)
TWO_THREADS = 0x20  # an option that the fuzzer may find by itself: it is slow
MAX_SEED_BYTES = 4096
CONTENTS = 6  # of picture.cpp
CHANNEL_CHOICES = 12


def with_trailer(body: bytes, repair: int) -> bytes:
    """The body, and options and a region that depend on nothing but the body."""
    options, *region = struct.unpack("<B4H", hashlib.sha256(body).digest()[:9])
    return body + struct.pack("<BB4H", repair, options & ~TWO_THREADS, *region)


def vectors() -> Iterator[tuple[str, bytes]]:
    for path in sorted(VECTORS.rglob("*.hri")):
        data = path.read_bytes()
        # Dozens of channels need megabytes of scratch memory and find little that a few do not: one such seed in four.
        channels = data[7] if len(data) > 7 else 0
        if len(data) <= MAX_SEED_BYTES and (channels <= 16 or data[-1] % 4 == 0):
            valid = path.parent.name == "valid"
            yield f"{path.parent.name}-{path.stem}", with_trailer(data, REPAIR if valid else AS_IS)


def pictures() -> Iterator[tuple[str, np.ndarray]]:
    """What the encoder takes each kind of tile for, in 8 and 16 bits."""
    rng = np.random.default_rng(0)
    for dtype, top in (("uint8", 255), ("uint16", 65535), ("int16", 32767)):
        for channels in (1, 3, 4):
            shape = (34, 45, channels)
            walk = np.cumsum(rng.normal(0, top / 200, shape), 1)
            yield f"smooth-{dtype}-{channels}", np.clip(walk + top // 2, 0, top).astype(dtype)
            labels = rng.integers(0, top, (5, channels))[np.repeat(rng.integers(0, 5, (34, 9)), 5, 1)]
            yield f"labels-{dtype}-{channels}", labels.astype(dtype)
        levels = np.sort(rng.integers(0, top, 300))
        yield f"levels-{dtype}", levels[rng.integers(0, 300, (20, 33)) // 9 * 9].astype(dtype)
        yield f"noise-{dtype}", rng.integers(0, top, (9, 33)).astype(dtype)
        yield f"flat-{dtype}", np.full((34, 230, 2), 77, dtype)


def encoded() -> Iterator[tuple[str, bytes]]:
    for name, picture in pictures():
        for mode in ("fast", "dense"):
            data = headrace.encode(picture, mode=mode, metadata={"note": b"seed"})
            if len(data) <= MAX_SEED_BYTES:
                yield f"encoded-{name}-{mode}", with_trailer(data, REPAIR)


def recipes() -> Iterator[tuple[str, bytes]]:
    """The bytes that picture.cpp reads: flags, channels, width, height, metadata, layout, content, samples."""
    rng = np.random.default_rng(1)
    for content in range(CONTENTS):
        for flags in (0, 1, 2, 3, 6, 7):  # mode, depth, sign
            width, height = int(rng.integers(0, 600)), int(rng.integers(0, 100))
            head = struct.pack("<BBHB", flags, int(rng.integers(0, CHANNEL_CHOICES)), width, height)
            layout = int(rng.integers(0, 64))
            body = head + bytes([0, layout, content]) + rng.bytes(40)
            yield f"recipe-{content}-{flags}", with_trailer(b"PICT" + body, AS_IS)


def streams(seed: int) -> Iterator[tuple[str, bytes]]:
    """Choices for loading.cpp and transforms.cpp: any bytes; short streams are continued from their checksum."""
    rng = np.random.default_rng(seed)
    for n in range(48):
        yield f"stream-{n:02}", rng.bytes(int(rng.integers(1, 160)))


def pngs() -> Iterator[tuple[str, bytes]]:
    """Files of every color type and depth. With REPAIR the harness takes the data for filtered rows."""
    rng = np.random.default_rng(3)
    for (kind, depth), interlaced in itertools.product(png_files.KINDS, (False, True)):
        samples = rng.integers(0, 2**depth, (9, 13, png_files.CHANNELS[kind]))
        file = png_files.write(samples, kind, depth, interlaced=interlaced, number=png_files.MIXED, rng=rng)
        yield f"file-{kind}-{depth}-{interlaced:d}", with_trailer(file, SEAL)
        rows = bytes(rng.integers(0, 5, 600, dtype=np.uint8))
        bare = png_files.wrap(13, 9, kind, depth, [rows], interlaced=interlaced)
        yield f"rows-{kind}-{depth}-{interlaced:d}", with_trailer(bare, REPAIR)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "corpus"
    tasks = {
        "decode": (vectors(), encoded()),
        "round_trip": (recipes(),),
        "loading": (streams(2),),
        "transforms": (streams(4),),
        "png": (pngs(),),
    }
    for task, sources in tasks.items():
        (folder / task).mkdir(parents=True, exist_ok=True)
        for path in (folder / task).iterdir():
            if not path.name.startswith("finding-"):
                path.unlink()
        sizes = [(folder / task / name).write_bytes(seed) for source in sources for name, seed in source]
        print(f"{task}: {len(sizes)} seeds, {sum(sizes)} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
