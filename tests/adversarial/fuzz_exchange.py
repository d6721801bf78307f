# SPDX-License-Identifier: Apache-2.0
"""Forged exchange folders: one side publishes what a seed has changed, under right checksums, and the other reads it.

`near`: a host reads the cell, the batches and the plan of an offload worker that lies. `host`: an offload worker that
serves a sound rank finds others whose recipes, rows and cells lie; the sound rank is served all the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from tests.adversarial.fuzz_forgeries import EDGES, hex_sum, mutate, mutate_json

import headrace
from headrace.errors import BadPreparedBatch, ExchangeError
from headrace.offload.exchange import BatchName, HostExchange, Stretch
from headrace.offload.worker import OffloadWorker

KINDS = ("near", "host")
SAMPLES, BATCH = 24, 4
PATIENCE = 4.0
RANKS_AT_ONCE = 32
CELL = 4096
DIGITS = slice(35, 43)  # of a batch file's own checksum


@contextlib.contextmanager
def opened(sound: Path, folder: Path, kind: str) -> Iterator[NearForgeries | HostForgeries | None]:
    """Give what runs the forgeries of a kind; None if it is not one of an exchange."""
    if kind not in KINDS:
        yield None
        return
    exchange = folder / f"exchange-{kind}"
    shutil.rmtree(exchange, ignore_errors=True)
    exchange.mkdir()
    options = {"transform": [headrace.transforms.Resize((16, 16))], "fields": ["image", "label"], "num_workers": 1}
    with (
        headrace.Loader(sound, batch_size=BATCH, output="numpy", **options) as loader,
        HostExchange(exchange, run="run", rank=0, recipe=loader.recipe) as host,
        working(sound, exchange) as worker,
    ):
        host.request([Stretch(0, 0, SAMPLES, 0, SAMPLES // BATCH)])
        wait_for(lambda: host.ready(name_of(0)))
        if kind == "host":
            yield HostForgeries(exchange, host, worker)
        else:
            worker.end()
            yield NearForgeries(exchange, host)


class working:  # noqa: N801 - a context manager, as those of contextlib
    """An offload worker in a thread."""

    def __init__(self, dataset: Path, exchange: Path) -> None:
        self._worker = OffloadWorker(dataset, exchange, threads=1, ahead_bytes=1 << 24)
        self._raised: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:  # noqa: BLE001 - the check raises it
            self._raised.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def check(self) -> None:
        """Raise what has ended it."""
        if self._raised:
            raise self._raised[0]

    def end(self) -> None:
        self._worker.stop()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise TimeoutError("the offload worker does not stop")

    def __exit__(self, *_: object) -> None:
        self.end()
        self.check()


def name_of(number: int) -> BatchName:
    return BatchName(0, 0, 0, SAMPLES, number)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a sound rank is not served")
        time.sleep(0.005)


def pack(document: bytes) -> bytes:
    """A cell with any content, and its checksum."""
    content = (b" " + document)[: CELL - 18].ljust(CELL - 18) + b"\n"
    return b"headrace " + hex_sum(content).encode() + content


def forge_cell(cell: bytes, rng: random.Random) -> bytes:
    document = json.loads(cell[17:])
    if rng.random() < 0.1:
        return pack(b'{"version":' + b"[" * 1900 + b"]" * 1900 + b"}")
    if rng.random() < 0.15:
        return pack(mutate(cell[18:400], rng).rstrip())
    if rng.random() < 0.3:
        document["marks"] = [[rng.choice((0, 0, SAMPLES, *EDGES)) for _ in range(5)] for _ in range(rng.choice((1, 9)))]
    return pack(json.dumps(mutate_json(document, rng)).encode())


def forge_batch(content: bytes, rng: random.Random) -> bytes:
    """A prepared batch whose header lies, with a right checksum."""
    n_header = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + n_header])
    match rng.randrange(4):
        case 0:
            described = mutate_json(json.loads(header["__metadata__"]["headrace"]), rng)
            header["__metadata__"]["headrace"] = json.dumps(described)
        case 1:
            return seal_batch(mutate(content, rng))
        case 2:
            header = mutate_json(header, rng)
        case _:
            tensors = [entry for name, entry in header.items() if name != "__metadata__"]
            entry = rng.choice(tensors)
            entry["shape"] = [rng.choice((1, 2, 3, *EDGES)) for _ in range(rng.choice((0, 1, 4, 70)))]
            if rng.random() < 0.5:
                entry["data_offsets"] = [rng.choice((0, *EDGES)), rng.choice((64, *EDGES))]
    text = json.dumps(header, separators=(",", ":")).encode()
    size = -(-(8 + len(text)) // CELL) * CELL - 8
    return seal_batch(size.to_bytes(8, "little") + text.ljust(size) + content[8 + n_header :])


def seal_batch(content: bytes) -> bytes:
    blank = content[: DIGITS.start] + b"00000000" + content[DIGITS.stop :]
    return content[: DIGITS.start] + hex_sum(blank).encode() + content[DIGITS.stop :]


def put(path: Path, content: bytes, rng: random.Random) -> None:
    """Put a file there, or now and then something that is none."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    match rng.randrange(200):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            path.symlink_to(path.name)
        case _:
            path.write_bytes(content)


class NearForgeries:
    """A host, and an offload worker's files that lie."""

    def __init__(self, exchange: Path, host: HostExchange) -> None:
        self._host, self._run = host, exchange / "run"
        self._rank = self._run / "rank-0"
        self._near = (self._rank / "near").read_bytes()
        self._name = name_of(max(number for number in range(SAMPLES // BATCH) if host.ready(name_of(number))))
        (self._path,) = self._rank.glob(f"0-0-{SAMPLES}-{self._name.number}.safetensors")
        self._batch = self._path.read_bytes()

    def run(self, seed: int) -> None:
        rng = random.Random(seed)
        which = rng.randrange(3)
        put(self._rank / "near", forge_cell(self._near, rng) if which == 0 else self._near, rng)
        put(self._path, forge_batch(self._batch, rng) if which == 1 else self._batch, rng)
        if which == 2:
            put(self._run / "plan-0.json", mutate(b'{"version":1,"skip":2,"near":1,"of":3}', rng), rng)
        for use in (
            self._host.stats,
            self._read,
            lambda: self._host.read_plan(0),
            lambda: self._host.ready(self._name),
        ):
            with contextlib.suppress(BadPreparedBatch, ExchangeError):
                use()

    def _read(self) -> None:
        prepared = self._host.read(self._name)
        if prepared is not None:
            for array in prepared.arrays.values():
                np.array(array)


class HostForgeries:
    """An offload worker, a sound rank, and ranks that lie."""

    def __init__(self, exchange: Path, host: HostExchange, worker: working) -> None:
        self._host, self._worker, self._exchange = host, worker, exchange
        sound = exchange / "run" / "rank-0"
        self._files = {name: (sound / name).read_bytes() for name in ("recipe.json", "host", "near")}
        self._placed: list[Path] = []
        self._rounds = 0

    def run(self, seed: int) -> None:
        rng = random.Random(seed)
        folder = self._exchange / f"run-{seed % 5}" / f"rank-{1 + len(self._placed)}"
        building = folder.with_name(f".{folder.name}.{seed:x}.tmp")
        building.mkdir(parents=True)
        files = dict(self._files)
        session = f"{seed:016x}"
        cell = json.loads(files["host"][17:])
        files["host"] = pack(json.dumps({**cell, "session": session}).encode())
        files["near"] = pack(b"{}")
        name = rng.choice(("recipe.json", "host", "near", "rows.npy"))
        if name == "recipe.json":
            recipe = mutate_json(json.loads(files[name]), rng)
            files[name] = json.dumps(recipe).encode() if rng.random() < 0.9 else b"[" * 100_000
        elif name == "rows.npy":
            stream = io.BytesIO()
            np.save(stream, np.array([rng.choice((0, 1, -1, 2**62)) for _ in range(rng.choice((1, 24)))], np.int64))
            files[name] = mutate(stream.getvalue(), rng)
        else:
            files[name] = forge_cell(files[name], rng)
        for each, content in files.items():
            put(building / each, content, rng)
        building.rename(folder)
        self._placed.append(folder)
        if len(self._placed) == RANKS_AT_ONCE:
            self._judge()

    def _judge(self) -> None:
        """Wait until the worker has looked at them, then see that it lives and serves the sound rank."""
        time.sleep(1.2)  # a busy worker looks for ranks once in a second
        self._worker.check()
        self._rounds += 1
        stretch = Stretch(self._rounds, 0, SAMPLES, 0, 2)
        self._host.request([stretch])
        wait_for(lambda: self._worker.check() or self._host.ready(BatchName(self._rounds, 0, 0, SAMPLES, 1)))
        for folder in self._placed:
            shutil.rmtree(folder, ignore_errors=True)
        self._placed.clear()
