# SPDX-License-Identifier: Apache-2.0
"""Ways to turn a folder of PNGs into a dataset, ours and others', and the mere work that none can avoid.

Each is run in a process of its own: `python benchmarks/_build/contenders.py NAME SOURCE DEST WORKERS` prints the cost.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import json
import resource
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

from headrace import formats

Contender = Callable[[Path, Path, int], None]


def files_of(source: Path) -> list[Path]:
    return sorted(path for path in source.rglob("*") if path.suffix.lower() in {".png", ".jpg", ".jpeg", ".webp"})


def decode_and_encode(path: Path, target: str) -> int:
    """The work itself, with nothing around it; the bytes are thrown away."""
    encoder, mode = formats.parse(target)
    return len(encoder.encode(formats.decode(path.read_bytes()), mode=mode))


def _mere(target: str, executor: Callable[[int], Executor]) -> Contender:
    def run(source: Path, _: Path, workers: int) -> None:
        files = files_of(source)
        with executor(workers) as pool:
            sum(pool.map(decode_and_encode, files, [target] * len(files), chunksize=8))

    return run


def _processes(workers: int) -> Executor:
    return ProcessPoolExecutor(workers, get_context("spawn"))


def _headrace(target: str, *, verify: bool) -> Contender:
    def run(source: Path, dest: Path, workers: int) -> None:
        from headrace.building import build  # noqa: PLC0415 - each contender pays for its own imports

        build(source, dest, format=target, workers=workers, verify=verify)

    return run


def _webdataset(source: Path, dest: Path, _: int) -> None:
    import webdataset  # noqa: PLC0415

    dest.mkdir()
    with webdataset.ShardWriter(str(dest / "%06d.tar"), maxsize=256 << 20, verbose=0) as sink:
        for number, path in enumerate(files_of(source)):
            sink.write({"__key__": f"{number:08d}", path.suffix[1:].lower(): path.read_bytes()})


def _read(path: str) -> dict[str, bytes]:
    return {"image": Path(path).read_bytes()}


def _litdata(source: Path, dest: Path, workers: int) -> None:
    import litdata  # noqa: PLC0415

    litdata.optimize(
        fn=_read,
        inputs=[str(path) for path in files_of(source)],
        output_dir=str(dest),
        chunk_bytes="256MB",
        num_workers=workers,
    )


class _Pictures:
    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[object]:
        return (formats.decode(self.files[index].read_bytes(), color="RGB"),)


def _ffcv(source: Path, dest: Path, workers: int) -> None:
    from ffcv.fields import RGBImageField  # noqa: PLC0415
    from ffcv.writer import DatasetWriter  # noqa: PLC0415

    writer = DatasetWriter(str(dest), {"image": RGBImageField(write_mode="raw")}, num_workers=workers)
    writer.from_indexed_dataset(_Pictures(files_of(source)))


CONTENDERS: dict[str, Contender] = {
    "decode + encode hri:dense, threads": _mere("hri:dense", ThreadPoolExecutor),
    "decode + encode hri:dense, processes": _mere("hri:dense", _processes),
    "headrace hri:dense": _headrace("hri:dense", verify=True),
    "headrace hri:dense, unverified": _headrace("hri:dense", verify=False),
    "headrace hri:fast": _headrace("hri:fast", verify=True),
    "headrace raw, unverified": _headrace("raw", verify=False),
    "ffcv raw": _ffcv,
    "headrace keep, unverified": _headrace("keep", verify=False),
    "webdataset, the files as they are": _webdataset,
    "litdata, the files as they are": _litdata,
}
NEEDS = {
    "ffcv raw": "ffcv",
    "webdataset, the files as they are": "webdataset",
    "litdata, the files as they are": "litdata",
}


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _bytes_below(dest: Path) -> int:
    files = [dest] if dest.is_file() else [path for path in dest.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def measure(name: str, source: Path, dest: Path, workers: int) -> dict[str, float]:
    """Run a contender here and now. Its imports and the start of its workers count; so does syncing, where it syncs."""
    cpu, start = _cpu_seconds(), time.perf_counter()
    CONTENDERS[name](source, dest, workers)
    seconds = time.perf_counter() - start
    own, child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - cpu,
        "peak_mb": max(own, child) / 1024,
        "n_bytes": _bytes_below(dest) if dest.exists() else 0,
    }


if __name__ == "__main__":
    _, which, source_text, dest_text, workers_text = sys.argv
    print(json.dumps(measure(which, Path(source_text), Path(dest_text), int(workers_text))))
