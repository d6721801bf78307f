# SPDX-License-Identifier: Apache-2.0
"""The process that works for a loader with `isolate=True`: the engine's threads, and a GIL of its own.

Started as `python -m headrace.loader._isolated_child <handle>`, so that no script of the user's is run again. It is
told in JSON what to do, runs no code of the user's, and ends when the loader hangs up or the loader's process dies.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
from typing import Any

import numpy as np

from headrace.errors import CorruptDataset
from headrace.loader._isolated_channel import Channel, Hangup
from headrace.loader._isolated_memory import Mapping, allocate, put_tree, tree_bytes
from headrace.loader._options import Options
from headrace.loader._pixels import EngineSource, PixelBatch
from headrace.records import open_dataset
from headrace.transforms import compile, from_json  # noqa: A004

# How soon the death of a parent is noticed whose end of the channel lives on in a process that it forked.
_SLICE_SECONDS = 0.25


def open_source(order: dict[str, Any]) -> EngineSource:
    """Make what the loader would make in its own process."""
    dataset = open_dataset(order["path"])
    if dataset.fingerprint != order["fingerprint"]:
        raise CorruptDataset(f"{dataset.path} was built anew since it was opened: open it again")
    options = Options(**order["options"], collate_fn=None)
    compiled = compile(
        [from_json(transform) for transform in order["transforms"]],
        dtype=order["dtype"],
        layout=options.layout,
        color=options.color,
        approximate_jpeg=options.approximate_jpeg,
    )
    return EngineSource(dataset, order["names"], compiled, seed=order["seed"], options=options)


class Slots:
    """Pieces of shared memory, each with one batch at a time. Those that come back are used again.

    There are as many as the loader has batches under way and its user holds, and a few more.
    """

    def __init__(self, channel: Channel, sending: threading.Lock, keep: int) -> None:
        self._channel, self._sending, self._keep = channel, sending, keep
        self._changing = threading.Lock()
        self._free: list[int] = []  # the one used last is at the end: its pages are likeliest in a cache
        self._mappings: dict[int, Mapping] = {}
        self._made = 0

    def acquire(self, n_bytes: int) -> tuple[int, Mapping]:
        with self._changing:
            for at in reversed(range(len(self._free))):
                slot = self._free[at]
                # No more than half of a piece is wasted.
                if n_bytes <= self._mappings[slot].n_bytes <= max(2 * n_bytes, 1 << 16):
                    del self._free[at]
                    return slot, self._mappings[slot]
        handle, mapping = allocate(n_bytes)
        try:
            with self._changing:
                slot, self._made = self._made, self._made + 1
                self._mappings[slot] = mapping
            with self._sending:
                self._channel.send({"op": "slot", "slot": slot, "bytes": mapping.n_bytes}, handle=handle)
        finally:
            os.close(handle)
        return slot, mapping

    def free(self, slots: list[int]) -> None:
        dropped = []
        with self._changing:
            self._free += slots
            while len(self._free) > self._keep:
                slot = self._free.pop(0)
                del self._mappings[slot]
                dropped.append(slot)
        if dropped:
            with self._sending:
                self._channel.send({"op": "drop", "slots": dropped})


class Child:
    """Takes orders in the main thread, and brings what is done in another."""

    def __init__(self, channel: Channel, order: dict[str, Any]) -> None:
        self._channel, self._parent = channel, int(order["parent"])
        self._sending = threading.Lock()
        self._wanted: set[int] = set()
        self._submitted: queue.SimpleQueue[tuple[int, PixelBatch]] = queue.SimpleQueue()
        self._slots = Slots(channel, self._sending, keep=int(order["keep"]))
        self._source = open_source(order)

    def run(self) -> None:
        threading.Thread(target=self._bring, name="headrace-bring", daemon=True).start()
        while True:
            message = self._channel.receive(_SLICE_SECONDS)
            if message is not None:
                self._obey(message.header, message.payload)
            elif os.getppid() != self._parent:
                return

    def _obey(self, header: dict[str, Any], payload: bytes) -> None:
        if header["op"] == "submit":
            number = header["batch"]
            try:
                batch = self._source.submit(np.frombuffer(payload, np.int64), header["epoch"])
            except Exception as error:  # noqa: BLE001 - the loader raises it
                self._tell_failure(number, error)
                return
            self._wanted.add(number)
            self._submitted.put((number, batch))
        elif header["op"] == "storage rate":
            self._source.set_storage_rate(header["rate"])
        elif header["op"] == "let go":
            self._wanted.difference_update(header["batches"])
            self._slots.free(header["slots"])

    def _bring(self) -> None:
        try:
            while True:
                number, batch = self._submitted.get()
                try:
                    self._bring_one(number, batch)
                except Hangup:
                    raise
                except Exception as error:  # noqa: BLE001 - the loader raises it
                    self._tell_failure(number, error)
                self._wanted.discard(number)
                del batch  # or its memory would be kept until the next one comes
        except Hangup:
            os._exit(0)

    def _bring_one(self, number: int, batch: PixelBatch) -> None:
        while not batch.wait(_SLICE_SECONDS):
            if number not in self._wanted:
                return
        if number not in self._wanted:
            return
        failures, fields = batch.failures(), batch.take()
        slot, mapping = self._slots.acquire(sum(map(tree_bytes, fields)))
        described, _ = put_tree(fields, np.asarray(mapping))
        done = {"op": "done", "batch": number, "slot": slot, "fields": described, "failures": failures}
        with self._sending:
            self._channel.send({**done, "stats": self._source.stats()})

    def _tell_failure(self, number: int, error: Exception) -> None:
        with self._sending:
            self._channel.send(failure(error, number))


def failure(error: Exception, batch: int | None) -> dict[str, Any]:
    return {"op": "failed", "batch": batch, "kind": type(error).__name__, "message": str(error)}


def main() -> None:
    # Ctrl-C goes to all processes of a terminal. The loader's own decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    with contextlib.suppress(Hangup):
        order = None
        while order is None:
            order = channel.receive(_SLICE_SECONDS)
        try:
            child = Child(channel, order.header)
        except Exception as error:  # noqa: BLE001 - the loader raises it
            channel.send(failure(error, None))
            return
        child.run()


if __name__ == "__main__":
    main()
    # Threads of the engine may be in the midst of an image that nobody wants: there is nothing to tidy up.
    os._exit(0)
