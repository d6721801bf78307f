# SPDX-License-Identifier: Apache-2.0
"""Decoding beside the training, recorded with a stand-in for CUDA: streams, two pinned buffers, and events."""

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
from headrace.kernels import backend  # noqa: E402
from headrace.loader._threads import Stopped  # noqa: E402
from headrace.loader.device import _work as _device_work  # noqa: E402
from headrace.loader.device._source import DeviceSource  # noqa: E402
from headrace.loader.device._staging import Staging, StagingRing  # noqa: E402
from headrace.loader.device._transfer import Transfer  # noqa: E402
from headrace.transforms import CenterCrop, compile  # noqa: A004, E402


class Cuda:
    """Streams and events that record what is launched on them; events are done when the test says so."""

    def __init__(self):
        self.streams, self.events, self.diary = [], [], []
        self._current = threading.local()

    def Stream(self, device, priority):  # noqa: N802
        stream = Stream(self, device, priority)
        self.streams.append(stream)
        return stream

    @contextlib.contextmanager
    def stream(self, stream):
        before = getattr(self._current, "stream", None)
        self._current.stream = stream
        yield
        self._current.stream = before

    def note(self, what):
        self.diary.append((what, getattr(self._current, "stream", None), None))

    def is_available(self):
        return True


class Stream:
    """Writes to the diary what it records and what it waits for."""

    def __init__(self, cuda, device, priority):
        self.cuda, self.device, self.priority = cuda, device, priority

    def record_event(self):
        event = Event()
        self.cuda.events.append(event)
        self.cuda.diary.append(("event", self, event))
        return event

    def wait_event(self, event):
        self.cuda.diary.append(("wait", self, event))


def schedule(diary, seconds):
    """When each piece of work starts and ends if every stream works in order, and waits where it is told to.

    Gives a list of (what, start, end) for what is in `seconds`, and the time of each event.
    """
    free, times, work = {}, {}, []
    for what, stream, event in diary:
        begin = free.get(stream, 0.0)
        if what == "wait":
            free[stream] = max(begin, times[event])
        elif what == "event":
            times[event] = begin
        elif what in seconds:
            free[stream] = begin + seconds[what]
            work.append((what, begin, free[stream]))
    return work, times


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    monkeypatch.setattr(torch, "cuda", fake)
    monkeypatch.setattr(backend, "interprets", lambda: False)
    empty, decode, send = torch.empty, kernels.decode_staged, Staging.send

    def unpinned(*args, pin_memory=False, **options):
        if pin_memory:
            fake.note("pinned")
        return empty(*args, **options)

    def noted(*args, **options):
        fake.note("decode")
        return decode(*args, **options)

    def sent(*args):
        fake.note("copy")
        return send(*args)

    fake.shared = []
    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(kernels, "decode_staged", noted)
    monkeypatch.setattr(Staging, "send", sent)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: fake.shared.append((tensor, stream)))
    return fake


def transfer_of(device="cpu"):
    transfer = Transfer(types.SimpleNamespace(device=device, pin_memory=False))
    transfer.moves = transfer.pins_staging = True
    return transfer


@pytest.fixture
def source(cuda, tmp_path):
    assert cuda.events == []
    path = write(tmp_path / "streams.hr", 8, formats=("hri:fast", "raw"))
    options = types.SimpleNamespace(
        num_workers=2, threads=2, direct_io=False, device="cpu", decode="device", storage_rate=None, plan=None
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


def test_copies_and_kernels_have_streams_of_the_lowest_priority(source, cuda):
    launched(source.submit(rows(0, 1, 2, 3), 0))
    launched(source.submit(rows(4, 5, 6, 7), 0))
    copying, decoding, _delivering = cuda.streams
    assert {stream.priority for stream in cuda.streams} == {0}
    assert [what for what, where, _ in cuda.diary if where is copying and what != "pinned"] == ["copy", "event"] * 2
    on_decoding = [what for what, where, _ in cuda.diary if where is decoding and what != "pinned"]
    assert on_decoding == ["wait", "decode", "event"] * 2


def test_the_copy_of_a_batch_overlaps_the_decoding_of_the_one_before(source, cuda):
    """In the recorded schedule, whatever copies and kernels take."""
    for at in (0, 2):
        launched(source.submit(rows(at, at + 1), 0))
    cuda.events[0].done = True
    launched(source.submit(rows(4, 5), 0))
    for seconds in ({"copy": 1.0, "decode": 3.0}, {"copy": 3.0, "decode": 2.0}):
        work, _ = schedule(cuda.diary, seconds)
        copies, decodes = ([each for each in work if each[0] == what] for what in ("copy", "decode"))
        for number in range(3):
            assert decodes[number][1] >= copies[number][2], "a batch is decoded after it was copied"
        for number in range(2):
            assert copies[number + 1][1] < decodes[number][2], "the next copy does not wait for the kernels"
            assert copies[number + 1][1] == copies[number][2], "copies follow each other without a pause"
    total = max(end for _, _, end in work)
    assert total < 3 * (3.0 + 2.0), "less than one after the other"


def test_labels_and_the_arrival_do_not_queue_behind_later_batches(source, cuda, monkeypatch):
    """The host has seen the first batch decoded; its labels need not wait for the two that were launched behind it."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    transfer = source._work._transfer
    first = launched(source.submit(rows(0, 1), 0))
    launched(source.submit(rows(2, 3), 0))
    cuda.events[0].done = True
    launched(source.submit(rows(4, 5), 0))
    arriving = transfer.start({"image": first.take()[0], "label": torch.arange(2)}, 2)
    _, times = schedule(cuda.diary, {"copy": 1.0, "decode": 5.0})
    decoded = [event for what, where, event in cuda.diary if what == "event" and where is cuda.streams[1]]

    assert len(cuda.streams) == 3
    assert arriving.event in times
    assert times[arriving.event] < times[decoded[1]], "no event of a later batch is waited for"


def test_memory_is_kept_until_each_stream_is_done_with_it(source, cuda):
    """PyTorch's allocator hands memory out again in the order of the stream that it was allocated on."""
    batch = launched(source.submit(rows(0, 1, 2, 3), 0))
    copying, decoding = cuda.streams[:2]
    [image] = batch.take()
    shared = {stream: [tensor for tensor, where in cuda.shared if where is stream] for _, stream in cuda.shared}

    assert copying not in shared
    assert [tensor.dtype for tensor in shared[decoding]] == [torch.uint8], "the bytes that were copied"
    [delivering] = set(shared) - {decoding}
    assert any(tensor is image for tensor in shared[delivering])


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
    assert [what for what, *_ in cuda.diary].count("event") == 6


def test_a_batch_that_nobody_wants_is_not_decoded(source, cuda):
    """It is dropped while the device is busy with those before it."""
    first, second = source.submit(rows(0, 1), 0), source.submit(rows(2, 3), 0)
    third = source.submit(rows(4, 5), 0)
    launched(second)
    del third
    cuda.events[0].done = True
    fourth = launched(source.submit(rows(6, 7), 0))
    assert [what for what, *_ in cuda.diary].count("decode") == 3
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


@pytest.mark.usefixtures("cuda")
def test_the_ring_grows_to_what_batches_need():
    ring = StagingRing(pin=True)
    staging = ring.next(lambda: None)
    room = len(staging.room)
    large = np.arange(room + 1, dtype=np.uint8)
    pieces = [staging.put(large), staging.put(np.arange(5))]
    assert pieces[0].apart is not None
    staging.send(torch.device("cpu"))
    assert torch.equal(staging.tensor(pieces[0], torch.uint8, (room + 1,)), torch.from_numpy(large))
    assert staging.tensor(pieces[1], torch.int64, (5,)).tolist() == [0, 1, 2, 3, 4]
    ring.sent(staging, Event())
    assert len(ring.next(lambda: None).room) > room


@pytest.mark.usefixtures("cuda")
def test_waiting_for_a_buffer_can_be_given_up():
    ring = StagingRing(pin=True)
    for _ in range(2):
        ring.sent(ring.next(lambda: None), Event())

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        ring.next(stop)
