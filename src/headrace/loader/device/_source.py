# SPDX-License-Identifier: Apache-2.0
"""Images and masks that a device decodes: a source of pixels whose batches are tensors in the device's memory.

    submit ──► plan ──► queue ──► read ──► lay out ──► copy ──► decode ──► event
                 └────► engine: formats that only the CPU decodes ──┘

A thread makes batch after batch on streams beside the training, one for copies and one for kernels. A batch is done
when its event is: by then the device has also reported which images it found damaged, so nobody has to ask and wait.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy.typing as npt

from headrace.errors import EngineClosed, LoaderError
from headrace.loader._options import Options
from headrace.loader._threads import SLICE_SECONDS, Stopped, StopSign, check, start_thread
from headrace.loader.device._bytes import Clock, EncodedImages
from headrace.loader.device._choice import device_formats
from headrace.loader.device._plan import Ending, Key, first_of, plan_field
from headrace.loader.device._transfer import Transfer
from headrace.loader.device._work import BatchRequest, DeviceWork, Failure, Result
from headrace.loader.pixels._engine import EngineSource, PixelBatch, Rows, Stack
from headrace.records import Dataset
from headrace.storage import Pace
from headrace.transforms import Compiled

_POLL_SECONDS = 0.0002  # how often an event is asked; a batch takes milliseconds


class DecodingBatch:
    """A batch that a device is at. What nobody holds any more is not made any further."""

    def __init__(self, request: BatchRequest, stop: StopSign) -> None:
        self.request = request
        self._stop = stop
        # No threading.Event: Ctrl-C in the trainer's thread could leave its lock held, and `put` would wait for ever.
        self._launched = threading.Lock()
        self._launched.acquire()  # until `put`
        self._result: Result | None = None
        self._error: BaseException | None = None

    def put(self, result: Result | None, error: BaseException | None = None) -> None:
        """Say that all is under way on the device, or that it cannot be."""
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
        return cast("list[Stack]", self._made().fields)

    def failures(self) -> list[Failure]:
        return self._made().all_failures()

    def _made(self) -> Result:
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise LoaderError("the batch is not ready: wait for it first")
        return self._result


class DeviceSource:
    """Decodes `hri` on the device that batches go to, and all else with the engine; both join in one batch."""

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
        self._renditions = {field.name: field.renditions for field in dataset.manifest.fields}
        self._endings = {name: Ending.of(compiled, mask=dataset.fields[name] == "mask") for name in names}
        self._engine = EngineSource(dataset, names, compiled, seed=seed, options=options)
        self._pace = Pace(options.storage_rate)
        images = EncodedImages(dataset, options.threads, self._pace)
        self._work = DeviceWork(images, transfer)
        self._queue: queue.SimpleQueue[weakref.ref[DecodingBatch]] = queue.SimpleQueue()
        self._stop = StopSign()
        self._thread = start_thread(_serve, (self._queue, self._work, self._stop), "headrace-device")

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        """Begin with a batch: the engine with its part at once, the device when it is done with those before."""
        if self._stop.is_set():
            raise EngineClosed("the loader's source was closed")
        key, clock = Key(self._seed, epoch), Clock()
        plans = tuple(
            plan_field(
                name,
                ending,
                self._columns(name, rows),
                rows,
                key,
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
        renditions = range(self._renditions[name])
        columns = [self._gather.pixel_columns(name, number, rows) for number in renditions]
        return first_of(columns, self._formats[name])

    def stats(self) -> dict[str, Any]:
        """The engine's figures, and those of the device's part."""
        return self._work.figures.added_to(self._engine.stats())

    def set_storage_rate(self, rate: float | None) -> None:
        """Let the engine, and what reads for the device, each read so many bytes a second; None: no limit."""
        self._engine.set_storage_rate(rate)
        self._pace.rate = rate

    def close(self) -> None:
        """End the threads; tensors that the trainer holds stay."""
        self._stop.set()
        self._engine.close()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._work.images.close()

    def __del__(self) -> None:
        stop = self.__dict__.get("_stop")
        if stop is not None:
            stop.set()  # the threads end by themselves


def _serve(requests: queue.SimpleQueue[weakref.ref[DecodingBatch]], work: DeviceWork, stop: StopSign) -> None:
    """Make batches until there is nobody to make them for. Knows no source, so it keeps none alive."""
    try:
        while True:
            check(stop)
            try:
                wanted = requests.get(timeout=SLICE_SECONDS)
            except queue.Empty:
                continue
            _make(wanted, work, stop)
    except Stopped:
        pass


def _make(wanted: weakref.ref[DecodingBatch], work: DeviceWork, stop: StopSign) -> None:
    batch = wanted()
    if batch is None:
        return
    request = batch.request
    del batch  # whether anyone still wants it is asked again and again

    def still_wanted() -> None:
        check(stop)
        if wanted() is None:
            raise _NobodyWantsIt

    result: Any = None
    error: BaseException | None = None
    try:
        result = work.run(request, still_wanted)
    except _NobodyWantsIt:
        return
    except Stopped:
        raise
    except BaseException as caught:  # noqa: BLE001 - the trainer must hear of it, whatever it is
        error = caught
    batch = wanted()
    if batch is not None:
        batch.put(result, error)


class _NobodyWantsIt(Exception):
    """A batch that was given up, as when the trainer leaves its loop."""
