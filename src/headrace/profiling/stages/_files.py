# SPDX-License-Identifier: Apache-2.0
"""A loader of plain files as one would write it by hand with Python threads: open, read, decode, transform, stack.

It is what the profile measures for a folder of images.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from headrace import formats
from headrace.errors import HeadraceError, ProfileError
from headrace.loader.batch.output import make_output
from headrace.profiling._measurements import Rate, Stage, StageName
from headrace.transforms import Compiled

BATCHES_AHEAD = 2
LOAD_ERRORS = (HeadraceError, OSError)
"""What loading a damaged or missing file raises."""


class StorageThrottle:
    """Emulates storage with a limited rate: a thread waits until its bytes would have arrived. Thread-safe."""

    # Bytes that may arrive at once after a pause: less than a batch, more than the scheduler's jitter.
    BURST_SECONDS = 0.01

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = -math.inf

    def take(self, n_bytes: int, stop: threading.Event | None = None) -> None:
        """Wait until these bytes would have arrived, or until `stop` is set."""
        with self._lock:
            now = time.perf_counter()
            self._free_at = max(self._free_at, now - self.BURST_SECONDS) + n_bytes / self._rate
            wait = self._free_at - now
        if wait > 0:
            (stop or threading.Event()).wait(wait)


@dataclass(frozen=True, slots=True)
class RawSample:
    """An encoded image."""

    name: str
    source: str | Callable[[], bytes]
    """The path of its file, or a function that reads it."""
    label: int | None = None


class _Laps:
    """Divides the time of one thread among stages.

    It counts CPU time: a thread that returns from a system call waits for the GIL, which would count for opening files.
    """

    def __init__(self) -> None:
        self.seconds: dict[StageName, float] = defaultdict(float)
        self._last = time.thread_time(), time.perf_counter()

    def end(self, stage: StageName, *, waits: bool = False) -> None:
        """Count the time since the last call for this stage: the elapsed time if it may wait on purpose."""
        now = time.thread_time(), time.perf_counter()
        self.seconds[stage] += now[waits] - self._last[waits]
        self._last = now


_Loaded: TypeAlias = tuple[Any, _Laps]
"""A sample, or None if it cannot be loaded, and what it took."""


class RawLoader:
    """Batches of images from files, in a new random order per epoch, made by threads ahead of the trainer.

    A file that cannot be loaded makes its batch shorter and is listed in `failures`. A batch that takes longer than
    `max_batch_seconds` is delivered with the samples that are ready by then.
    """

    def __init__(
        self,
        samples: Sequence[RawSample],
        compiled: Compiled,
        *,
        batch_size: int,
        workers: int,
        output: Literal["torch", "numpy"] = "numpy",
        throttle: StorageThrottle | None = None,
        max_batch_seconds: float = math.inf,
        before_epoch: Callable[[], object] | None = None,
    ) -> None:
        self._samples, self._compiled = samples, compiled
        self.batch_size, self._workers, self._tensor = batch_size, workers, make_output(output).tensor
        self._throttle, self._max_batch_seconds, self._before_epoch = throttle, max_batch_seconds, before_epoch
        self._epoch = -1
        self.failures: dict[str, Exception] = {}
        self.busy_seconds: dict[StageName, float] = defaultdict(float)
        """Of all threads, for the samples in `loaded`: CPU time, but elapsed time for functions and batches."""
        self.loaded = 0

    def __len__(self) -> int:
        return (len(self._samples) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Any]:
        self._epoch += 1
        if self._before_epoch is not None:
            self._before_epoch()
        order = np.random.default_rng(self._epoch).permutation(len(self._samples)).tolist()
        return self._batches(
            [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        )

    def thread_stages(self) -> list[Stage]:
        """Return the stage of the iterating thread: it makes batches of samples."""
        seconds = self.busy_seconds["batch"]
        rates = (Rate(cores=1, rate=self.loaded / seconds),) if seconds else ()
        return [Stage(name="batch", place="trainer", rates=rates, detail="stack")]

    def _batches(self, batches: list[list[int]]) -> Iterator[Any]:
        pool, stop = ThreadPoolExecutor(self._workers, thread_name_prefix="headrace-raw"), threading.Event()
        waiting, ahead, given = iter(batches), deque[list[Future[_Loaded]]](), 0
        try:
            while True:
                while len(ahead) < BATCHES_AHEAD and (numbers := next(waiting, None)) is not None:
                    ahead.append([pool.submit(self._sample, number, stop) for number in numbers])
                if not ahead:
                    break
                samples = list(self._ready(ahead))
                if samples:
                    given += 1
                    started = time.perf_counter()
                    batch = self._batch(samples)
                    self.busy_seconds["batch"] += time.perf_counter() - started
                    yield batch
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        if not given and self.failures:
            name, error = next(iter(self.failures.items()))
            raise ProfileError(f"none of the {len(self.failures)} files can be loaded; {name}: {error}")

    def _ready(self, ahead: deque[list[Future[_Loaded]]]) -> Iterator[Any]:
        """Wait for the samples of the next batch; late ones move to the batch after it."""
        waiting, end = ahead.popleft(), time.perf_counter() + self._max_batch_seconds
        for position, future in enumerate(waiting):
            if position and time.perf_counter() > end:
                ahead.appendleft(waiting[position:])
                return
            sample, laps = future.result()
            if sample is not None:
                self.loaded += 1
                for stage, seconds in laps.seconds.items():
                    self.busy_seconds[stage] += seconds
                yield sample

    def _sample(self, number: int, stop: threading.Event) -> _Loaded:
        """Make one sample."""
        sample, compiled, laps = self._samples[number], self._compiled, _Laps()
        try:
            content = _read(sample.source, laps)
            if self._throttle is not None:
                self._throttle.take(len(content), stop)
            # All of the image is decoded: the crop is not known yet.
            image = formats.decode(content, color="keep" if compiled.color == "keep" else "RGB")
        except LOAD_ERRORS as error:
            self.failures[sample.name] = error
            return None, laps
        laps.end("decode")
        fields = {} if sample.label is None else {"label": np.int64(sample.label)}
        made = _transformed(image, compiled, number, self._epoch, fields)
        laps.end("transform", waits=bool(compiled.per_sample))
        return made, laps

    def _batch(self, samples: list[Any]) -> Any:
        batch = _stacked(samples)
        for function in self._compiled.per_batch:
            batch = function(batch)
        if not isinstance(batch, dict):
            return batch
        return {name: self._tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def _read(source: str | Callable[[], bytes], laps: _Laps) -> bytes:
    if not isinstance(source, str):
        content = source()
    else:
        with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - as fast as opening a file can be
            laps.end("open")
            content = file.read()
    laps.end("read")
    return content


def _transformed(image: Any, compiled: Compiled, number: int, epoch: int, fields: Mapping[str, Any]) -> Any:
    """Apply the declarative transforms, then the user's functions."""
    pixels: list[Any] = [
        compiled.group_of(view).image.apply(image, seed=0, epoch=epoch, sample=number, view=view)
        for view in range(compiled.views)
    ]
    stacked = pixels if len(compiled.groups) > 1 else np.stack(pixels)
    sample: Any = {"image": pixels[0] if len(pixels) == 1 else stacked, **fields}
    for function in compiled.per_sample:
        sample = function(sample)
    return sample


def _stacked(samples: Sequence[Any]) -> Any:
    """Make one batch of samples; columns with different shapes stay lists."""
    first = samples[0]
    if not isinstance(first, dict):
        return list(samples)
    batch: dict[str, Any] = {}
    for name, value in first.items():
        column = [sample[name] for sample in samples]
        same = isinstance(value, np.ndarray | np.generic) and len({item.shape for item in column}) == 1
        batch[name] = np.stack(column) if same else column
    return batch
