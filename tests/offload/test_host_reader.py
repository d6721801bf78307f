# SPDX-License-Identifier: Apache-2.0
"""When the host writes its request: at once where that matters, else together, because each write costs CPU time."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.offload.exchange import BatchName, PreparedBatch, Stretch
from headrace.offload.exchange._batch_file import ROWS_TENSOR, BatchShape, SampleShape
from headrace.offload.host import _reader
from headrace.offload.host._reader import PreparedBatches

BATCH_BYTES = 1000
FOLLOWING = Stretch(1, 0, 100, 5, 10)


class FakeExchange:
    """Has every batch ready, and remembers the requests."""

    silent_seconds = 0.0

    def __init__(self, *, room: int) -> None:
        self.requests: list[tuple[list[Stretch], bool]] = []
        self._beat = SimpleNamespace(
            state="working", reason="", ahead_bytes=room * BATCH_BYTES, marks=(), seconds_per_batch=0.1
        )

    def heartbeat(self, max_age=0.0):
        del max_age
        return self._beat

    def request(self, stretches, *, soon=True):
        self.requests.append((list(stretches), soon))

    def read(self, name, limits):
        del limits
        rows = np.arange(name.number * 10, name.number * 10 + 10)
        return PreparedBatch({ROWS_TENSOR: rows, "image": np.zeros((10, 1))}, BATCH_BYTES, 0.001, 0.001)


def make_prepared(exchange):
    last = BatchName(0, 0, 0, 100, 9)
    shape = SampleShape((1,), "float64", 8)
    shapes = SimpleNamespace(of=lambda rows: BatchShape(rows, {"image": [shape] * len(rows)}))
    prepared = PreparedBatches(
        exchange, last, shapes=shapes, samples=lambda number: (np.arange(number * 10, number * 10 + 10), None)
    )
    prepared.update()
    prepared.want(4, FOLLOWING)
    return prepared


def test_a_request_is_written_at_once_and_once():
    exchange = FakeExchange(room=100)
    prepared = make_prepared(exchange)
    prepared.request()
    prepared.request()
    prepared.want(4, FOLLOWING)
    prepared.request()

    assert exchange.requests == [([Stretch(0, 0, 100, 4, 10), FOLLOWING], True)]


def test_a_read_is_reported_at_once_if_there_is_little_room():
    exchange = FakeExchange(room=4)
    prepared = make_prepared(exchange)
    prepared.request()
    prepared.step()
    prepared.request()

    assert exchange.requests[1] == ([Stretch(0, 0, 100, 4, 9), FOLLOWING], True)


def test_other_reads_are_reported_together_after_a_beat(monkeypatch):
    exchange = FakeExchange(room=100)
    prepared = make_prepared(exchange)
    prepared.request()
    for _ in range(2):
        prepared.step()
        prepared.request()

    assert len(exchange.requests) == 1
    monkeypatch.setattr(_reader, "BEAT_SECONDS", 0.0)
    prepared.request()
    prepared.request()
    assert exchange.requests[1:] == [([Stretch(0, 0, 100, 4, 8), FOLLOWING], False)]


def test_the_samples_of_a_batch_are_known_once_it_is_read():
    prepared = make_prepared(FakeExchange(room=100))
    prepared.step()

    assert prepared.samples(8) is None
    rows, repeat = prepared.samples(9)
    assert rows.tolist() == list(range(90, 100))
    assert repeat is None


@pytest.mark.parametrize(
    ("change", "to", "wanted"),
    [
        ("want", (6, FOLLOWING), [(6, 10)]),
        ("skip_from", (8,), [(4, 8)]),
        ("skip", (7,), [(8, 10), (4, 7)]),
    ],
)
def test_a_smaller_request_is_written_at_once(change, to, wanted):
    exchange = FakeExchange(room=100)
    prepared = make_prepared(exchange)
    prepared.request()
    getattr(prepared, change)(*to)
    prepared.request()

    assert exchange.requests[1] == ([*(Stretch(0, 0, 100, *each) for each in wanted), FOLLOWING], True)


def test_a_thread_that_has_enough_is_woken_to_end(monkeypatch):
    monkeypatch.setattr(_reader, "_BEAT_AGE_SECONDS", 60.0)
    exchange = FakeExchange(room=100)
    prepared = make_prepared(exchange)
    prepared.start()
    deadline = time.monotonic() + 10
    while prepared.published < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    begun = time.monotonic()
    prepared.join()

    assert time.monotonic() - begun < 30
    assert exchange.requests[-1] == ([FOLLOWING], True)
