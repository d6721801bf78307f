# SPDX-License-Identifier: Apache-2.0
"""Decoding beside the training, walked with a stand-in for CUDA: one stream, two pinned buffers, and events."""

from __future__ import annotations

import contextlib
import threading
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.loader.datasets import write  # noqa: E402
from tests.loader.test_device import Event  # noqa: E402

import headrace  # noqa: E402
from headrace import kernels  # noqa: E402
from headrace.kernels import _backend  # noqa: E402
from headrace.loader import _device_work  # noqa: E402
from headrace.loader._device import Transfer  # noqa: E402
from headrace.loader._device_source import DeviceSource  # noqa: E402
from headrace.loader._device_staging import StagingRing  # noqa: E402
from headrace.loader._wait import Stopped  # noqa: E402
from headrace.transforms import CenterCrop, compile  # noqa: A004, E402


class Cuda:
    """Streams that are told apart by their numbers, events that are done when the test says so, and a diary."""

    def __init__(self):
        self.streams, self.events, self.diary = [], [], []
        self._current = threading.local()

    def Stream(self, device, priority):  # noqa: N802
        stream = types.SimpleNamespace(device=device, priority=priority, record_event=self._record)
        self.streams.append(stream)
        return stream

    def _record(self):
        self.note("event")
        self.events.append(Event())
        return self.events[-1]

    @contextlib.contextmanager
    def stream(self, stream):
        self._current.stream = stream
        yield
        self._current.stream = None

    def note(self, what):
        self.diary.append((what, getattr(self._current, "stream", None)))

    def is_available(self):
        return True


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    monkeypatch.setattr(torch, "cuda", fake)
    monkeypatch.setattr(_backend, "interprets", lambda: False)
    empty, decode = torch.empty, kernels.decode_prepared

    def unpinned(*args, pin_memory=False, **options):
        if pin_memory:
            fake.note("pinned")
        return empty(*args, **options)

    def noted(*args, **options):
        fake.note("decode")
        return decode(*args, **options)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(kernels, "decode_prepared", noted)
    return fake


def transfer_of(device="cpu"):
    transfer = Transfer(types.SimpleNamespace(device=device, pin_memory=False))
    transfer.moves = transfer._streams = True
    return transfer


@pytest.fixture
def source(cuda, tmp_path):
    assert cuda.events == []
    path = write(tmp_path / "streams.hr", 8, formats=("hri:fast", "raw"))
    options = types.SimpleNamespace(
        threads=2, direct=False, device="cpu", decode="device", storage_rate=None, plan=None
    )
    compiled = compile([CenterCrop(8)])
    made = DeviceSource(headrace.open(path), ["image"], compiled, seed=0, options=options, transfer=transfer_of())
    yield made
    for event in cuda.events:
        event.done = True
    made.close()


def launched(batch):
    assert batch._launched.acquire(timeout=20)
    return batch


def rows(*numbers):
    return np.array(numbers, np.int64)


def test_a_batch_is_done_when_its_event_is(source, cuda):
    batch = launched(source.submit(rows(0, 1, 2, 3), 0))
    assert not batch.wait(0.01)
    copied, decoded = cuda.events
    copied.done = True
    assert not batch.wait(0.01)
    decoded.done = True
    assert batch.wait(0.01)
    assert batch.failures() == []
    assert batch.take()[0].shape == (4, 3, 8, 8)


def test_all_runs_on_one_stream_of_the_lowest_priority(source, cuda):
    launched(source.submit(rows(0, 1, 2, 3), 0))
    launched(source.submit(rows(4, 5, 6, 7), 0))
    [stream] = cuda.streams
    assert stream.priority == 0
    on_stream = [what for what, where in cuda.diary if where is stream and what != "pinned"]
    assert on_stream == ["event", "decode", "event"] * 2


def test_the_status_is_looked_at_after_the_event(source, cuda, monkeypatch):
    """What the device has to say comes with the batch; nothing asks for it before."""
    read = []
    failures = kernels.failures
    monkeypatch.setattr(_device_work.kernels, "failures", lambda codes: read.append(codes) or failures(codes))
    batch = launched(source.submit(rows(0, 1), 0))
    assert read == []
    for event in cuda.events:
        event.done = True
    assert batch.wait(1)
    assert batch.failures() == []
    assert read == [[0] * source.stats()["images_on_device"]]


def test_the_third_batch_waits_for_the_first_copy(source, cuda):
    """Two buffers: the third batch is laid out where the first was, and not before that has been copied."""
    batches = [source.submit(rows(at, at + 1), 0) for at in (0, 2, 4)]
    launched(batches[1])
    assert not batches[2]._launched.acquire(timeout=0.2)
    cuda.events[0].done = True
    launched(batches[2])
    assert [what for what, _ in cuda.diary].count("event") == 6


def test_a_batch_that_nobody_wants_is_not_decoded(source, cuda):
    """It is dropped while the device is busy with those before it."""
    first, second = source.submit(rows(0, 1), 0), source.submit(rows(2, 3), 0)
    third = source.submit(rows(4, 5), 0)
    launched(second)
    del third
    cuda.events[0].done = True
    fourth = launched(source.submit(rows(6, 7), 0))
    assert [what for what, _ in cuda.diary].count("decode") == 3
    del first, fourth


def test_what_is_on_the_device_is_not_copied_again(cuda):
    """PyTorch's device of shapes without memory stands for the accelerator."""
    transfer = transfer_of("meta")
    decoded = torch.empty((2, 3), device="meta")
    pinned = []
    original = torch.Tensor.pin_memory
    try:
        torch.Tensor.pin_memory = lambda tensor: pinned.append(tensor) or tensor
        arriving = transfer.start({"image": decoded, "label": torch.arange(2)}, 2)
    finally:
        torch.Tensor.pin_memory = original
    assert arriving.batch["image"] is decoded
    assert arriving.batch["label"].device.type == "meta"
    assert [tensor.shape for tensor in pinned] == [(2,)]
    assert arriving.event is cuda.events[-1]


def test_the_ring_grows_to_what_batches_need(cuda):
    ring = StagingRing(pin=True)
    staging = ring.next(lambda: None)
    room = len(staging.room)
    large = np.arange(room + 1, dtype=np.uint8)
    pieces = [staging.put(large), staging.put(np.arange(5))]
    assert pieces[0].apart is not None
    staging.send(torch.device("cpu"))
    assert torch.equal(staging.tensor(pieces[0], torch.uint8, (room + 1,)), torch.from_numpy(large))
    assert staging.tensor(pieces[1], torch.int64, (5,)).tolist() == [0, 1, 2, 3, 4]
    ring.sent(staging, cuda._record())
    assert len(ring.next(lambda: None).room) > room


def test_waiting_for_a_buffer_can_be_given_up(cuda):
    ring = StagingRing(pin=True)
    for _ in range(2):
        ring.sent(ring.next(lambda: None), cuda._record())

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        ring.next(stop)
