# SPDX-License-Identifier: Apache-2.0
"""A forged offload worker against a loader: every epoch has the right batches, whatever lies in the exchange.

The forged worker computes all checksums and labels as an honest one does. Then it writes another shape, another dtype,
other numbers, or something that is no file.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from tests.loader.datasets import copied
from tests.offload import forged
from tests.offload.exchanges import wait_until
from tests.offload.offloading import OPTIONS, numbers_of, paced, plain_batches, slot_order

from headrace import open as open_dataset
from headrace.loader import Loader
from headrace.offload import Offload
from headrace.offload.exchange._batch_file import batch_file, pack_batch
from headrace.offload.exchange._batch_header import NAMES
from headrace.offload.exchange._files import read_cell
from headrace.offload.exchange._folder import rank_folders
from headrace.offload.exchange._names import WORKER_CELL, BatchName, Origin
from headrace.offload.worker._rank import BatchMaker, RankCells
from headrace.transforms import Recipe

BATCHES = 20


class Forger:
    """Takes the first rank that comes, and publishes what `forge` makes of its batches."""

    def __init__(self, dataset: Path, exchange: Path, forge: Callable[[Path, bytes], Any], beat=None) -> None:
        self._dataset, self._exchange, self._forge, self._beat = dataset, exchange, forge, beat
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._exchange.mkdir(exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            for folder, rank in rank_folders(self._exchange):
                with contextlib.suppress(Exception):  # the host closes when it likes
                    self._serve(RankCells(folder, rank, "forger"))
            time.sleep(0.005)

    def _serve(self, cells: RankCells) -> None:
        assert cells.claim()
        maker = BatchMaker(open_dataset(self._dataset), Recipe.from_json(json.dumps(cells.recipe)), threads=1)
        made: set[BatchName] = set()
        while not self._stop.is_set():
            cells.update()
            for each in cells.request.stretches[:1]:
                for number in reversed(range(each.bottom, each.top)):
                    name = BatchName(each.epoch, cells.rank, each.start, each.stop, number)
                    if name not in made:
                        self._publish(cells, maker, name)
                        made.add(name)
                marks = ((*each[:3], each.bottom, each.top),)
                cells.write(state="working", marks=marks, seconds_per_batch=0.001, ahead_bytes=1 << 20)
                if self._beat is not None:
                    self._beat(cells.folder / WORKER_CELL, read_cell(cells.folder / WORKER_CELL))
            time.sleep(0.002)

    def _publish(self, cells: RankCells, maker: BatchMaker, name: BatchName) -> None:
        making = maker.begin(name)
        while not making.wait(1.0):
            pass
        content = forged.content_of(pack_batch(name, cells.origin, making.take()))
        self._forge(cells.folder / batch_file(name), content)


def arrays(edit: Callable[[dict[str, np.ndarray]], None]) -> Callable[[Path, bytes], None]:
    """Forge a batch whose arrays are others, laid out and labelled as they should be."""

    def forge(path: Path, content: bytes) -> None:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        described = json.loads(header["__metadata__"]["headrace"])
        name = BatchName(*(described[label] for label in BatchName._fields))
        origin = Origin(*(described[label] for label in Origin._fields))
        found = {}
        for tensor, entry in header.items():
            if not tensor.startswith("_padding") and tensor != "__metadata__":
                begin, end = entry["data_offsets"]
                dtype = NAMES[entry["dtype"]]
                data = content[8 + length + begin : 8 + length + end]
                found[tensor] = np.frombuffer(data, dtype).reshape(entry["shape"])
        edit(found)
        path.write_bytes(forged.content_of(pack_batch(name, origin, found)))

    return forge


def header(edit: Callable[[dict[str, Any]], str | None]) -> Callable[[Path, bytes], None]:
    return lambda path, content: path.write_bytes(forged.reheaded(content, edit))


def another_place(path: Path, content: bytes) -> None:
    target = path.with_name(f".{path.name}.real.tmp")
    target.write_bytes(content)
    path.symlink_to(target)


FORGED = {
    "another dtype": arrays(lambda found: found.update(image=found["image"].astype(np.float64))),
    "another dtype of the same size": arrays(lambda found: found.update(image=found["image"].view(np.int32))),
    "another layout": arrays(lambda found: found.update(image=np.moveaxis(found["image"], 1, 3))),
    "a smaller image": arrays(lambda found: found.update(image=found["image"][..., :-1])),
    "a flat image": arrays(lambda found: found.update(image=found["image"].reshape(-1))),
    "fewer samples": arrays(lambda found: found.update(image=found["image"][:1])),
    "more samples": arrays(lambda found: found.update(image=np.concatenate([found["image"]] * 2))),
    "a larger image than fits": arrays(lambda found: found.update(image=np.zeros(1 << 22, np.float32))),
    "no image": arrays(lambda found: found.pop("image")),
    "no mask": arrays(lambda found: found.pop("mask", None) if "mask" in found else found.pop("image")),
    "no rows": arrays(lambda found: found.pop("_rows")),
    "other rows": arrays(lambda found: found.update(_rows=found["_rows"] + 1)),
    "rows of another dtype": arrays(lambda found: found.update(_rows=found["_rows"].astype(np.float64))),
    "nothing at all": arrays(lambda found: found.clear()),
    "a deep header": header(lambda _: '{"__metadata__":{"crc32c":"00000000","headrace":' + "[" * 90000),
    "deep labels": header(
        lambda h: h["__metadata__"].update(headrace='{"version":1,"run":' + "[" * 20000 + "]" * 20000 + "}")
    ),
    "labels of 3000 digits": header(
        lambda h: h["__metadata__"].update(
            headrace=h["__metadata__"]["headrace"].replace('"rank":0', '"rank":' + forged.DIGITS)
        )
    ),
    "another version": header(forged.edit_label("version", 2)),
    "a version that is true": header(forged.edit_label("version", True)),
    "another session": header(forged.edit_label("session", "00" * 8)),
    "another epoch": header(forged.edit_label("epoch", 77)),
    "a number of text": header(forged.edit_label("number", "19")),
    "declined with control characters": header(forged.edit_label("declined", "\x1b[2J\n" * 1000)),
    "declined with a tree": header(forged.edit_label("declined", [[[]]])),
    "labels that are a list": header(lambda h: h["__metadata__"].update(headrace="[]")),
    "a negative offset": header(forged.edit_tensor(data_offsets=[-4096, 0])),
    "an offset behind the end": header(forged.edit_tensor(data_offsets=[0, 2**62])),
    "offsets of text": header(forged.edit_tensor(data_offsets=["0", "64"])),
    "one offset": header(forged.edit_tensor(data_offsets=[0])),
    "offsets that are no list": header(forged.edit_tensor(data_offsets=7)),
    "a shape of 2**62": header(forged.edit_tensor(shape=[2**62, 2**62, 4])),
    "a shape with a zero in it": header(forged.edit_tensor(shape=[0, 2**62], data_offsets=[0, 0])),
    "a shape of 200 dimensions": header(forged.edit_tensor(shape=[1] * 200)),
    "a negative shape": header(forged.edit_tensor(shape=[-1, -1])),
    "a shape of fractions": header(forged.edit_tensor(shape=[0.5])),
    "a dtype that is not known": header(forged.edit_tensor(dtype="F8_E4M3")),
    "a dtype that is a list": header(forged.edit_tensor(dtype=["U8"])),
    "tensors that overlap": header(lambda h: h.update(_rows={**h["_rows"], "data_offsets": [0, 16]})),
    "a tensor that is a number": header(lambda h: h.update(image=3)),
    "a tensor more than there is data for": header(
        lambda h: h.update(more={"dtype": "U8", "shape": [64], "data_offsets": [0, 64]})
    ),
    "a header that claims to be 2**63 long": lambda path, content: path.write_bytes(
        forged.summed((2**63).to_bytes(8, "little") + content[8:])
    ),
    "a flipped bit": lambda path, content: path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]),
    "half of it": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "an empty file": lambda path, _: path.write_bytes(b""),
    "a terabyte": lambda path, _: forged.sparse(path),
    "a FIFO": lambda path, _: forged.fifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "a link to the right file": another_place,
    "a device": lambda path, _: path.symlink_to("/dev/zero"),
    "no file": lambda *_: None,
}


def give(loader: Loader) -> list[Any]:
    got = []
    for batch in loader:
        got.append(copied(batch))
        time.sleep(0.002)
    return got


@pytest.fixture(scope="module")
def plain(core_path):
    return plain_batches(core_path)


def test_an_honest_batch_is_taken(core_path, tmp_path, plain):
    """What the tests below rely on: without the forgery the batches would have been used."""
    exchange, strategy = tmp_path / "exchange", paced(2, 5, skip=4)
    with (
        Forger(core_path, exchange, lambda path, content: path.write_bytes(content)),
        Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=strategy)) as loader,
    ):
        iteration = iter(loader)
        # When the second batch is read, the first is ready for its slot, however busy the machine is.
        wait_until(lambda: loader.stats().offload["exchange"]["read_batches"] >= 2)
        got = [copied(batch) for batch in iteration]
        figures = loader.stats().offload
    assert numbers_of(got, plain) == slot_order(BATCHES, strategy.recorded(0))
    assert figures["offload_batches"] > 0
    assert figures["redone"]["bad"] == 0


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_batch_is_dropped_reported_and_made_by_the_host(core_path, tmp_path, plain, forge, caplog):
    exchange, strategy = tmp_path / "exchange", paced(2, 5, skip=4)
    with (
        Forger(core_path, exchange, forge),
        Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=strategy)) as loader,
    ):
        iteration = iter(loader)
        # Before the host knows of a worker, it makes batches itself and looks at no file.
        wait_until(lambda: any("the host makes batch" in message for message in caplog.messages))
        got = [copied(batch) for batch in iteration]
        figures = loader.stats().offload
    assert numbers_of(got, plain) == slot_order(BATCHES, strategy.recorded(0))
    assert figures["offload_batches"] == 0
    assert figures["redone"]["bad"] > 0
    assert all(message.isprintable() for message in caplog.messages)


HEARTBEATS = {
    "deep": lambda _: forged.cell(forged.DEEP),
    "no JSON": lambda _: forged.cell("{"),
    "a list": lambda _: forged.cell("[]"),
    "a version of text": lambda b: forged.edited_cell(b, version="1"),
    "a pace of text": lambda b: forged.edited_cell(b, seconds_a_batch="fast"),
    "a pace of nothing": lambda b: forged.edited_cell(b, seconds_a_batch=0),
    "a negative pace": lambda b: forged.edited_cell(b, seconds_a_batch=-1.0),
    "a pace that is no number": lambda b: forged.raw_member(b, "seconds_a_batch", "NaN"),
    "an infinite pace": lambda b: forged.raw_member(b, "seconds_a_batch", "1e999"),
    "a pace of years": lambda b: forged.edited_cell(b, seconds_a_batch=9e8),
    "room of 3000 digits": lambda b: forged.raw_member(b, "ahead_bytes", "9" * 3000),
    "no room": lambda b: forged.edited_cell(b, ahead_bytes=0),
    "room of text": lambda b: forged.edited_cell(b, ahead_bytes="much"),
    "marks of two": lambda b: forged.edited_cell(b, marks=[[0, 0]]),
    "marks of text": lambda b: forged.edited_cell(b, marks="all"),
    "marks of lists": lambda b: forged.edited_cell(b, marks=[[[]] * 5]),
    "marks of everything": lambda b: forged.edited_cell(b, marks=[[0, 0, 40, 0, 2**48]] * 8),
    "many marks": lambda b: forged.edited_cell(b, marks=[[0, 0, 40, 0, 10]] * 100),
    "an unknown state": lambda b: forged.edited_cell(b, state="dancing"),
    "a state that is a list": lambda b: forged.edited_cell(b, state=["working"]),
    "refused with control characters": lambda b: forged.edited_cell(b, state="refused", reason="\x1b[2J\n" * 90),
    "a reason of numbers": lambda b: forged.edited_cell(b, reason=[1]),
    "no worker": lambda b: forged.edited_cell(b, worker=...),
    "a worker that is a list": lambda b: forged.edited_cell(b, worker=[1]),
    "a process of 2**60": lambda b: forged.edited_cell(b, process=[b["process"][0], 2**60, 0]),
    "joules of text": lambda b: forged.edited_cell(b, joules="many"),
    "batches below zero": lambda b: forged.edited_cell(b, batches=-5),
}


@pytest.mark.parametrize("beat", HEARTBEATS.values(), ids=HEARTBEATS)
def test_a_forged_heartbeat_harms_no_epoch(core_path, tmp_path, plain, beat, caplog):
    """With a strategy that measures, and believes what it is told."""
    exchange = tmp_path / "exchange"

    def overwrite(path: Path, honest: dict[str, Any]) -> None:
        path.write_bytes(beat(honest))
        time.sleep(0.005)

    with (
        Forger(core_path, exchange, lambda path, content: path.write_bytes(content), overwrite),
        Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy="wrr")) as loader,
    ):
        got = give(loader)
        figures = loader.stats().offload
    assert sorted(numbers_of(got, plain)) == list(range(BATCHES))
    assert figures["longest_wait_seconds"] < 5
    assert all(message.isprintable() for message in caplog.messages)


@pytest.mark.parametrize(
    "attack",
    [
        forged.fifo,
        lambda path: forged.link(path, "/dev/zero"),
        forged.sparse,
        forged.directory,
    ],
    ids=["FIFO", "device", "terabyte", "folder"],
)
def test_a_heartbeat_that_is_no_file_harms_no_epoch(core_path, tmp_path, plain, attack):
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy="paced")) as loader:
        iteration = iter(loader)
        attack(next(exchange.glob("*/rank-0")) / WORKER_CELL)
        got = [copied(batch) for batch in iteration]
        with contextlib.suppress(OSError):
            (next(exchange.glob("*/rank-0")) / WORKER_CELL).rmdir()
    assert numbers_of(got, plain) == list(range(BATCHES))


PLANS = {
    "deep": forged.DEEP,
    "a list": "[]",
    "no decisions": '{"iteration":1}',
    "decisions of text": '{"iteration":1,"decisions":"yes"}',
    "half a decision": '{"iteration":1,"decisions":{"5":{}}}',
    "a pattern of text": '{"iteration":1,"decisions":{"5":{"off":null,"pattern":"h"}}}',
    "a pattern of 3000 digits": '{"iteration":1,"decisions":{"5":{"off":null,"pattern":'
    f'{{"skip":0,"near":0,"of":{"9" * 3000},"phase":0}}}}}}}}',
    "a reason of numbers": '{"iteration":1,"decisions":{"5":{"off":[],"pattern":null}}}',
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_forged_plan_is_an_error_that_says_so(core_path, tmp_path, plan, monkeypatch):
    """All ranks must walk by one pattern, so a rank that finds none raises; it neither guesses nor crashes."""
    monkeypatch.setattr("headrace.offload.host._schedule.PLAN_SECONDS", 0.2)
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    with Loader(core_path, **OPTIONS, offload=exchange, rank=1, world_size=2) as loader:
        iteration = iter(loader)
        (next(exchange.iterdir()) / "plan-0.json").write_text(plan)
        with pytest.raises(Exception, match="rank 0's plan of epoch 0") as caught:
            list(iteration)
    assert type(caught.value).__name__ == "LoaderError"


def test_an_error_that_nobody_foresaw_ends_no_epoch(core_path, tmp_path, plain, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr("headrace.offload.host._reader.PreparedBatches._read", broken)
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced(2, 5, skip=4))) as loader:
        got = [copied(batch) for batch in loader]
    assert sorted(numbers_of(got, plain)) == list(range(BATCHES))
    assert sum("ZeroDivisionError: unforeseen" in message for message in caplog.messages) == 1
