# SPDX-License-Identifier: Apache-2.0
"""The way to an accelerator, walked with a stand-in for CUDA: what is copied from is kept until the copy is done."""

from __future__ import annotations

import types

import pytest
from tests.loader.datasets import labels

import headrace
from headrace.loader.device._transfer import Transfer
from headrace.transforms import CenterCrop

torch = pytest.importorskip("torch")


class Event:
    """Done when the test says so."""

    def __init__(self):
        self.done = False

    def query(self):
        return self.done

    def synchronize(self):
        self.done = True


class Stream:
    """Remembers what it was told to wait for."""

    def __init__(self, *_):
        self.events = []
        self.waited = []

    def record_event(self):
        self.events.append(Event())
        return self.events[-1]

    def wait_event(self, event):
        self.waited.append(event)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def cuda(monkeypatch):
    """A stand-in for torch.cuda; pinning copies, and streams are told nothing."""
    current = Stream()
    fake = types.SimpleNamespace(
        Stream=Stream, stream=lambda stream: stream, current_stream=lambda _: current, is_available=lambda: True
    )
    monkeypatch.setattr(torch, "cuda", fake)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    return current


@pytest.fixture
def transfer(cuda):
    assert cuda.events == []
    made = Transfer(types.SimpleNamespace(device="cpu", pin_memory=False))
    made.moves = made.pins_staging = True
    return made


def batch_of(number):
    return {"image": torch.full((2, 3), number), "name": ["a", "b"]}


def test_what_is_copied_from_is_kept_until_the_copy_is_done(transfer):
    first, second = transfer.start(batch_of(1), 2), transfer.start(batch_of(2), 2)
    assert len(transfer._held) == 2
    first.event.done = True
    third = transfer.start(batch_of(3), 2)
    assert [event for event, _ in transfer._held] == [second.event, third.event]
    transfer.close()
    assert not transfer._held
    assert third.event.done


def test_the_trainers_stream_waits_for_the_copy(transfer, cuda):
    arriving = transfer.start(batch_of(1), 2)
    assert cuda.waited == []
    batch = transfer.finish(arriving)
    assert cuda.waited == [arriving.event]
    assert torch.equal(batch["image"], torch.full((2, 3), 1))
    assert batch["name"] == ["a", "b"]


def test_a_device_without_a_number_is_the_current_one_of_the_trainers_thread(cuda):
    """In the threads of a loader another may be current."""
    assert cuda.events == []
    transfer = Transfer(types.SimpleNamespace(device="cuda", pin_memory=False))
    torch.cuda.current_device = lambda: 3
    transfer.find_device()
    assert transfer.device == torch.device("cuda:3")
    torch.cuda.current_device = lambda: 0
    transfer.find_device()
    assert transfer.device == torch.device("cuda:3")


@pytest.mark.usefixtures("cuda")
def test_pinned_batches(path):
    """Pinning alone runs in the thread that works ahead, and changes nothing."""
    with headrace.Loader(path, transform=[CenterCrop(8)], batch_size=8, num_workers=2, pin_memory=True) as loader:
        assert labels(loader) == [list(range(start, start + 8)) for start in range(0, 40, 8)]
        assert loader.stats().busy_seconds.transfer > 0
