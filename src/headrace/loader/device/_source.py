# SPDX-License-Identifier: Apache-2.0
"""A source of pixels that a device decodes: its batches are tensors in the memory of the device.

    submit ──► plan ──► queue ──► read ──► lay out ──► copy ──► decode ──► event
                 └────► engine: formats that only the CPU decodes ──┘

A thread makes one batch after another on streams of its own, one for copies and one for kernels. A batch is done when
its event is. By then the device has also reported which images are damaged, so nobody has to wait for that.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy.typing as npt

from headrace.errors import EngineClosed, LoaderError
from headrace.loader._options import Options
from headrace.loader._threads import Stopped, StopSign, check, start_thread, take_item
from headrace.loader.batch._stats import Clock
from headrace.loader.device._bytes import EncodedImages
from headrace.loader.device._choice import device_formats
from headrace.loader.device._plan import Ending, first_of, plan_field
from headrace.loader.device._transfer import Transfer
from headrace.loader.device._work import BatchRequest, DecodedBatch, DeviceWork, Failure
from headrace.loader.pixels._engine import EngineSource, PixelBatch, Rows, Stack
from headrace.records import Dataset
from headrace.storage import Pace
from headrace.transforms import Compiled

_POLL_SECONDS = 0.0002  # a batch takes milliseconds


class DecodingBatch:
    """A batch that a device decodes. Dropping it cancels the work."""

    def __init__(self, request: BatchRequest, stop: StopSign) -> None:
        self.request = request
        self._stop = stop
        # Not a threading.Event: Ctrl-C in the training loop's thread could leave its lock held and block `put`.
        self._launched = threading.Lock()
        self._launched.acquire()  # until `put`
        self._result: DecodedBatch | None = None
        self._error: BaseException | None = None

    def put(self, result: DecodedBatch | None, error: BaseException | None = None) -> None:
        """Set the result, which the device may still work on, or the error."""
        self._result, self._error = result, error
        self._launched.release()

    def wait(self, timeout: float) -> bool:
        """Wait for the device's event, without the GIL."""
        deadline = time.monotonic() + timeout
        if self._result is None and self._error is None and not self._launched.acquire(timeout=timeout):
            if self._stop.is_set():
                raise EngineClosed("the loader's source was closed")
            return False
        event = None if self._result is None else self._result.event
        while event is not None and not event.query():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def take(self) -> list[Stack]:
        return cast("list[Stack]", self._checked_result().fields)

    def failures(self) -> list[Failure]:
        return self._checked_result().all_failures()

    def _checked_result(self) -> DecodedBatch:
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise LoaderError("the batch is not ready: wait for it first")
        return self._result


class DeviceSource:
    """Decodes `hri` on the device that batches go to, and other formats with the engine. Both join in one batch."""

    def __init__(
        self,
        dataset: Dataset,
        names: Sequence[str],
        compiled: Compiled,
        *,
        seed: int,
        options: Options,
        transfer: Transfer,
    ) -> None:
        self._seed, self._views = seed, compiled.views
        self._gather = dataset.gather
        self._formats = device_formats(options, names)
        self._renditions = {field.name: range(field.renditions) for field in dataset.manifest.fields}
        self._endings = {name: Ending.of(compiled, mask=dataset.fields[name] == "mask") for name in names}
        self._engine = EngineSource(dataset, names, compiled, seed=seed, options=options)
        self._pace = Pace(options.storage_rate)
        images = EncodedImages(dataset, options.threads, self._pace)
        self._work = DeviceWork(images, transfer)
        self._queue: queue.SimpleQueue[weakref.ref[DecodingBatch]] = queue.SimpleQueue()
        self._stop = StopSign()
        self._thread = start_thread(_serve, (self._queue, self._work, self._stop), "headrace-device")

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        """Submit a batch. The engine starts with its part at once, the device after the batches before."""
        if self._stop.is_set():
            raise EngineClosed("the loader's source was closed")
        clock = Clock()
        plans = tuple(
            plan_field(
                name,
                ending,
                self._columns(name, rows),
                rows,
                seed=self._seed,
                epoch=epoch,
                formats=self._formats[name],
                views=self._views,
                max_bytes=self._engine.max_batch_bytes,
            )
            for name, ending in self._endings.items()
        )
        clock.stop()
        forms = [job.format for plan in plans for job in plan.jobs]
        self._work.figures.spread(forms, cpu_seconds=clock.cpu_seconds)
        rest = tuple(
            self._engine.submit(rows[plan.rest], epoch, [plan.name]) if len(plan.rest) else None for plan in plans
        )
        batch = DecodingBatch(BatchRequest(len(rows), self._views, plans, rest), self._stop)
        self._queue.put(weakref.ref(batch))
        return batch

    def _columns(self, name: str, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        columns = [self._gather.pixel_columns(name, number, rows) for number in self._renditions[name]]
        return first_of(columns, self._formats[name])

    def stats(self) -> dict[str, Any]:
        """Return the sum of the engine's counters and those of the device."""
        return self._work.figures.added_to(self._engine.stats())

    def set_storage_rate(self, rate: float | None) -> None:
        """Limit the reads of the engine and those for the device, each to this many bytes per second."""
        self._engine.set_storage_rate(rate)
        self._pace.rate = rate

    def close(self) -> None:
        """End the threads. Tensors that were returned stay valid."""
        self._stop.set()
        self._engine.close()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._work.images.shards.close()

    def __del__(self) -> None:
        stop = self.__dict__.get("_stop")
        if stop is not None:
            stop.set()  # the threads end by themselves


def _serve(requests: queue.SimpleQueue[weakref.ref[DecodingBatch]], work: DeviceWork, stop: StopSign) -> None:
    """Make batches until the stop sign is set. Does not refer to the source, so it does not keep it alive."""
    with contextlib.suppress(Stopped):
        while True:
            _make(take_item(requests, stop), work, stop)


def _make(reference: weakref.ref[DecodingBatch], work: DeviceWork, stop: StopSign) -> None:
    batch = reference()
    if batch is None:
        return
    request = batch.request
    del batch  # so that the reference shows when it is dropped

    def check_needed() -> None:
        check(stop)
        if reference() is None:
            raise Stopped

    result: DecodedBatch | None = None
    error: BaseException | None = None
    try:
        result = work.run(request, check_needed)
    except Stopped:
        check(stop)  # raises it again, unless only this batch was dropped
        return
    except BaseException as caught:  # noqa: BLE001 - the training loop's thread raises it
        error = caught
    batch = reference()
    if batch is not None:
        batch.put(result, error)
