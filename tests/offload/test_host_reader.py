# SPDX-License-Identifier: Apache-2.0
"""What the offload worker hears of the host, and when: each word of it costs the host a core's attention."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.offload import BatchName, PreparedBatch, Stretch
from headrace.offload.exchange._contents import ROWS, BatchShape, Shape
from headrace.offload.host import _reader
from headrace.offload.host._reader import PreparedBatches, ReadingThread

BATCH_BYTES = 1000
FOLLOWING = Stretch(1, 0, 100, 5, 10)


class AnExchange:
    """Has every batch ready, and remembers what was ordered."""

    silent_seconds = 0.0

    def __init__(self, *, room: int) -> None:
        self.ordered: list[tuple[list[Stretch], bool]] = []
        self._beat = SimpleNamespace(
            state="working", reason="", ahead_bytes=room * BATCH_BYTES, marks=(), seconds_a_batch=0.1
        )

    def heartbeat(self, within=0.0):
        del within
        return self._beat

    def order(self, stretches, *, soon=True):
        self.ordered.append((list(stretches), soon))

    def read(self, name, limits):
        del limits
        rows = np.arange(name.number * 10, name.number * 10 + 10)
        return PreparedBatch({ROWS: rows, "image": np.zeros((10, 1))}, BATCH_BYTES, 0.001, 0.001)


def near_batches(exchange):
    last = BatchName(0, 0, 0, 100, 9)
    shape = Shape((1,), "float64", 8)
    shapes = SimpleNamespace(of=lambda rows: BatchShape(rows, {"image": [shape] * len(rows)}))
    near = PreparedBatches(
        exchange, last, shapes=shapes, samples=lambda number: (np.arange(number * 10, number * 10 + 10), None)
    )
    near.look()
    near.want(4, FOLLOWING)
    return near


def test_what_is_wanted_is_said_at_once_and_once():
    exchange = AnExchange(room=100)
    near = near_batches(exchange)
    near.tell()
    near.tell()
    near.want(4, FOLLOWING)
    near.tell()

    assert exchange.ordered == [([Stretch(0, 0, 100, 4, 10), FOLLOWING], True)]


def test_that_a_batch_was_read_is_said_at_once_if_room_is_scarce():
    exchange = AnExchange(room=4)
    near = near_batches(exchange)
    near.tell()
    near.step()
    near.tell()

    assert exchange.ordered[1] == ([Stretch(0, 0, 100, 4, 9), FOLLOWING], True)


def test_else_it_is_said_of_all_together_after_a_beat(monkeypatch):
    exchange = AnExchange(room=100)
    near = near_batches(exchange)
    near.tell()
    for _ in range(2):
        near.step()
        near.tell()

    assert len(exchange.ordered) == 1
    monkeypatch.setattr(_reader, "BEAT_SECONDS", 0.0)
    near.tell()
    near.tell()
    assert exchange.ordered[1:] == [([Stretch(0, 0, 100, 4, 8), FOLLOWING], False)]


def test_samples_are_known_of_what_is_read():
    near = near_batches(AnExchange(room=100))
    near.step()

    assert near.samples(8) is None
    rows, repeat = near.samples(9)
    assert rows.tolist() == list(range(90, 100))
    assert repeat is None


@pytest.mark.parametrize(
    ("change", "to", "wanted"),
    [
        ("want", (6, FOLLOWING), [(6, 10)]),
        ("skip", (8,), [(4, 8)]),
        ("leave", (7,), [(8, 10), (4, 7)]),
    ],
)
def test_what_is_not_wanted_any_more_is_said_at_once(change, to, wanted):
    exchange = AnExchange(room=100)
    near = near_batches(exchange)
    near.tell()
    getattr(near, change)(*to)
    near.tell()

    assert exchange.ordered[1] == ([*(Stretch(0, 0, 100, *each) for each in wanted), FOLLOWING], True)


def test_a_thread_that_has_enough_is_woken_to_end(monkeypatch):
    monkeypatch.setattr(_reader, "_LOOK_SECONDS", 60.0)
    exchange = AnExchange(room=100)
    near = near_batches(exchange)
    thread = ReadingThread(near)
    thread.start()
    deadline = time.monotonic() + 10
    while near.count < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    begun = time.monotonic()
    thread.join()

    assert time.monotonic() - begun < 30
    assert exchange.ordered[-1] == ([FOLLOWING], True)
