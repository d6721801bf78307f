# SPDX-License-Identifier: Apache-2.0
"""Random mutations of every file of an exchange, their checksums computed again: refused, or harmless, and bounded.

A few thousand run every day. `HEADRACE_EXCHANGE_MUTATIONS=1000000` runs more, and `-m slow` a hundred thousand. A
failure names its seed, which repeats it.
"""

from __future__ import annotations

import json
import os
import random
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.offload import forged
from tests.offload.exchanges import COUNT, make_loader, name_of, stretch

from headrace import open as open_dataset
from headrace.errors import BadPreparedBatch
from headrace.offload.exchange import Heartbeat
from headrace.offload.exchange._batch_file import BatchReader, BatchShapes, is_within, pack_batch
from headrace.offload.exchange._documents import HostRequest
from headrace.offload.exchange._files import CellReader, pack_cell
from headrace.offload.exchange._liveness import is_gone, this_process
from headrace.offload.exchange._names import HOST_CELL, RECIPE, ROWS, WORKER_CELL, Origin
from headrace.offload.worker import _search
from headrace.offload.worker._rank import BatchMaker, RankCells
from headrace.transforms import Recipe
from headrace.transforms import compile as compile_transform

MUTATIONS = int(os.environ.get("HEADRACE_EXCHANGE_MUTATIONS", "1000"))
COUNTS = [MUTATIONS, pytest.param(100_000, marks=pytest.mark.slow)]
MAX_GROWTH = 512 << 20
SHALLOW: list[Any] = [
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**32, 2**48, 2**63 - 1, 2**63, 2**64, 2**200, -(2**70), 0.5, -0.0, 1e308),
    *("", "x", "\x1b[2J", "\ud800", "x" * 500, "1", "U8", "F64", "I64", [], {}, [0], [[]], {"a": 1}, [0] * 300),
]


def deep(rng: random.Random) -> Any:
    value: Any = 0
    for _ in range(rng.choice([20, 200, 600])):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all values of a document, but for those that lie very deep."""
    items: Any = ()
    if isinstance(document, (dict, list)) and len(path) < 6:
        items = document.items() if isinstance(document, dict) else enumerate(document)
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def mutated(document: Any, rng: random.Random) -> Any:
    """The same document with one to three values replaced, removed, repeated or moved by one."""
    document = copied(document)
    for _ in range(rng.randint(1, 3)):
        inner = places(document)[1:]
        if not inner:
            break
        *path, last = rng.choice(inner)
        parent = document
        for key in path:
            parent = parent[key]
        value = parent[last]
        match rng.randrange(6):
            case 0:
                del parent[last]
            case 1 if isinstance(value, int):
                parent[last] = value + rng.choice([-1, 1, 64, -64, 4096])
            case 2 if isinstance(value, list):
                parent[last] = copied(value * rng.randint(2, 9))
            case 3 if rng.random() < 0.2:
                parent[last] = deep(rng)
            case _:
                parent[last] = copied(rng.choice(SHALLOW))
    return document


def scrambled(content: bytes, rng: random.Random) -> bytes:
    """The same bytes with some flipped, cut out, repeated, or cut off."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(max(1, len(changed)))
        match rng.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[at : at + rng.randint(1, 64)]
            case 2:
                changed[at:at] = changed[at : at + rng.randint(1, 64)]
            case 3:
                del changed[at:]
            case _:
                changed[at : at + 8] = rng.choice([2**64 - 1, 2**63, 0, len(changed)]).to_bytes(8, "little")
    return bytes(changed)


def cell_of(document: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return scrambled(pack_cell(document), rng)
    text = json.dumps(mutated(document, rng))
    if rng.random() < 0.1:
        text = scrambled(text.encode(), rng).decode("latin-1")
    return forged.cell(text)[: forged.CELL_BYTES] if len(text) < 4000 else forged.cell(text[:4000])


@pytest.fixture(autouse=True)
def bounded():
    """Whatever is read, memory does not grow with what files claim."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MAX_GROWTH


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", ["host", "near"])
def test_cells(tmp_path, kind, count, monkeypatch):
    monkeypatch.setattr("headrace.offload.exchange._files._CELL_RETRY_SECONDS", 0.0)
    request = HostRequest("ab" * 8, 7, this_process(), (stretch(), stretch(epoch=1)), closed=False).to_json()
    beat = Heartbeat("ab" * 8, "cd" * 8, 7, "working", marks=((0, 0, 40, 3, 10),), process=this_process()).to_json()
    document, parse = (request, HostRequest.from_json) if kind == "host" else (beat, Heartbeat.from_json)
    path, read = tmp_path / "cell", 0
    for seed in range(count):
        rng = random.Random(seed)
        path.write_bytes(cell_of(document, rng))
        try:
            found = CellReader(path, parse).read()
        except ValueError:
            continue
        if found is not None:
            read += 1
            is_gone(found.process)
            pack_cell(found.to_json())
            if kind == "near":
                is_within(name_of(9), found.marks)
    assert read  # some mutations do no harm


@pytest.fixture(scope="module")
def made(dataset):
    """A batch, what it must look like, and its file."""
    with make_loader(dataset) as loader:
        recipe = Recipe.from_json(loader.recipe)
    maker = BatchMaker(open_dataset(dataset), recipe, threads=1)
    making = maker.begin(name_of(9))
    while not making.wait(1.0):
        pass
    arrays = {name: np.array(array) for name, array in making.take().items()}
    shapes = BatchShapes(open_dataset(dataset), maker.fields, compile_transform(recipe.transforms))
    maker.close()
    return arrays, shapes.of(arrays["_rows"])


@pytest.mark.parametrize("count", COUNTS)
def test_prepared_batches(tmp_path, made, count):
    arrays, shape = made
    origin = Origin("run", "ab" * 8, "f" * 32)
    content = forged.content_of(pack_batch(name_of(9), origin, arrays))
    path, reader, outcomes = tmp_path / "batch", BatchReader(origin), {"taken": 0, "refused": 0}
    unprintable = 0
    for seed in range(count):
        rng = random.Random(seed)
        path.write_bytes(batch_of(content, rng))
        try:
            stacks = shape.stacked(reader.read(path, name_of(9), shape.limits).arrays)
        except (BadPreparedBatch, ValueError) as error:
            outcomes["refused"] += 1
            unprintable += not str(error).isprintable()
            continue
        outcomes["taken"] += 1
        for stack, name in zip(stacks, ("image", "mask"), strict=True):
            assert (stack.shape, stack.dtype) == (arrays[name].shape, arrays[name].dtype), seed
            stack.sum()  # all of it is memory that may be read
    assert unprintable == 0
    assert outcomes["taken"]
    assert outcomes["refused"] > outcomes["taken"]


def batch_of(content: bytes, rng: random.Random) -> bytes:
    match rng.randrange(4):
        case 0:
            return forged.summed(scrambled(content, rng).ljust(64, b"\0"))
        case 1:
            return forged.summed(content[:4096] + scrambled(content[4096:], rng))
        case 2:
            return forged.reheaded(content, forged.edit_labels(lambda labels: mutated(labels, rng)))
        case _:
            return forged.reheaded(content, lambda header: json.dumps(mutated(header, rng), separators=(",", ":")))


@pytest.mark.parametrize("count", [MUTATIONS // 5, pytest.param(5000, marks=pytest.mark.slow)])
def test_ranks(dataset, folder, count, monkeypatch):
    """All files of a rank, as the offload worker takes it: it is refused, or served, and never more than that."""
    monkeypatch.setattr("headrace.offload.worker._rank._CLAIM_SECONDS", 0.0)
    monkeypatch.setattr(_search, "_FAULT_SECONDS", 0.0)
    with make_loader(dataset, indices=np.arange(COUNT)) as loader:
        recipe = loader.recipe
    makers = _search.Makers(dataset, 1)
    reports: list[str] = []
    search = _search.RankSearch(folder, "worker", makers, None, reports.append)
    rank = folder / "run" / "rank-0"
    served = 0
    for seed in range(count):
        rng = random.Random(seed)
        request = forged.plant(rank, recipe, stretches=(stretch(),))
        (rank / ROWS).write_bytes(forged.rows_file(np.arange(COUNT)))
        spoil(rank, request, recipe, rng)
        found = search._try(rank, 0)
        if found is not None:
            served += 1
            found.update(1 << 20) if rng.random() < 0.5 else None
            found.next_name([])
            makers.keep_only(())
    assert served
    assert len(reports) > count / 4
    assert all(line.isprintable() for line in reports)
    assert makers._makers == {}


def spoil(rank: Path, request: HostRequest, recipe: dict[str, Any], rng: random.Random) -> None:
    name = rng.choice([HOST_CELL, WORKER_CELL, RECIPE, RECIPE, RECIPE, ROWS])
    if name == HOST_CELL:
        (rank / name).write_bytes(pack_cell_or_none(mutated(request.to_json(), rng)))
    elif name == WORKER_CELL:
        (rank / name).write_bytes(pack_cell_or_none(mutated(Heartbeat("a", "b", 1, "ended").to_json(), rng)))
    elif name == RECIPE:
        text = json.dumps(mutated(recipe, rng)).encode()
        (rank / name).write_bytes(scrambled(text, rng) if rng.random() < 0.2 else text)
    else:
        (rank / name).write_bytes(scrambled((rank / name).read_bytes(), rng))


def pack_cell_or_none(document: Any) -> bytes:
    text = json.dumps(document)
    return forged.cell(text if len(text) < 4000 else "{}")


def test_plans(tmp_path):
    """A plan is read by every rank but 0; a RankCells beside it is not disturbed."""
    rank = tmp_path / "run" / "rank-0"
    forged.plant(rank, {"version": 1})
    with forged.host(tmp_path) as exchange:
        for seed in range(MUTATIONS // 5):
            rng = random.Random(seed)
            plan = {"iteration": 1, "decisions": {"5": {"off": None, "pattern": {"skip": 0, "near": 1, "of": 2}}}}
            text = json.dumps(mutated(plan, rng)).encode()
            (tmp_path / "run" / "plan-3.json").write_bytes(scrambled(text, rng) if rng.random() < 0.5 else text)
            assert isinstance(exchange.read_plan(3), dict | None)
        assert RankCells(rank, 0, "worker").recipe == {"version": 1}
