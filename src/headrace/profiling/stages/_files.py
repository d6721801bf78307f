# SPDX-License-Identifier: Apache-2.0
"""A loader of plain files as one would write it by hand with Python threads: open, read, decode, transform, stack.

It is what the profile measures for a folder of images. The stages after reading are here too, each measured alone.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headrace import formats
from headrace.errors import HeadraceError, ProfileError
from headrace.loader.batch.output import make_output
from headrace.measuring import ImageSample, scaling_of, timed
from headrace.profiling._measurements import Rate, Stage
from headrace.profiling.stages._loader_stages import describe_transforms
from headrace.transforms import Compiled

BATCHES_AHEAD = 2
LOAD_ERRORS = (HeadraceError, OSError)
"""What loading a damaged or missing file raises."""
MAX_PIXEL_BYTES = 256 << 20
"""Decoded images that are kept for measuring transforms."""


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
    """An encoded image in a file or in a part of one."""

    name: str
    read: Callable[[], bytes]
    label: int | None = None


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

    def _batches(self, batches: list[list[int]]) -> Iterator[Any]:
        pool, stop = ThreadPoolExecutor(self._workers, thread_name_prefix="headrace-raw"), threading.Event()
        waiting, ahead, given = iter(batches), deque[list[Future[Any]]](), 0
        try:
            while True:
                while len(ahead) < BATCHES_AHEAD and (numbers := next(waiting, None)) is not None:
                    ahead.append([pool.submit(self._sample, number, stop) for number in numbers])
                if not ahead:
                    break
                loaded = [sample for sample in self._ready(ahead) if sample is not None]
                if loaded:
                    given += 1
                    yield self._finished(loaded)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        if not given and self.failures:
            name, error = next(iter(self.failures.items()))
            raise ProfileError(f"none of the {len(self.failures)} files can be loaded; {name}: {error}")

    def _ready(self, ahead: deque[list[Future[Any]]]) -> Iterator[Any]:
        """Wait for the samples of the next batch; late ones move to the batch after it."""
        waiting, end = ahead.popleft(), time.perf_counter() + self._max_batch_seconds
        for position, future in enumerate(waiting):
            if position and time.perf_counter() > end:
                ahead.appendleft(waiting[position:])
                return
            yield future.result()

    def _sample(self, number: int, stop: threading.Event) -> Any:
        """Make one sample; None if it cannot be loaded."""
        sample = self._samples[number]
        try:
            content = sample.read()
            if self._throttle is not None:
                self._throttle.take(len(content), stop)
            image = _decoded(content, self._compiled)
        except LOAD_ERRORS as error:
            self.failures[sample.name] = error
            return None
        fields = {} if sample.label is None else {"label": np.int64(sample.label)}
        return _transformed(image, self._compiled, number, self._epoch, fields)

    def _finished(self, samples: list[Any]) -> Any:
        batch = _stacked(samples)
        for function in self._compiled.per_batch:
            batch = function(batch)
        if not isinstance(batch, dict):
            return batch
        return {name: self._tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def _decoded(content: bytes, compiled: Compiled) -> Any:
    """Decode all of an image: the crop is not known yet."""
    return formats.decode(content, color="keep" if compiled.color == "keep" else "RGB")


def _transformed(
    image: Any, compiled: Compiled, number: int, epoch: int = 0, fields: Mapping[str, Any] | None = None
) -> Any:
    """Apply the declarative transforms, then the user's functions."""
    pixels: list[Any] = [
        compiled.group_of(view).image.apply(image, seed=0, epoch=epoch, sample=number, view=view)
        for view in range(compiled.views)
    ]
    stacked = pixels if len(compiled.groups) > 1 else np.stack(pixels)
    sample: Any = {"image": pixels[0] if len(pixels) == 1 else stacked, **(fields or {})}
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


def decode_stage(images: ImageSample, compiled: Compiled, *, cores: Sequence[int], seconds: float) -> Stage:
    """Measure decoding of complete images."""

    def decode(number: int) -> None:
        with suppress(*LOAD_ERRORS):  # a damaged file costs the same here as in an epoch
            _decoded(images.contents[number], compiled)

    rates, cpu = scaling_of(decode, len(images), cores=cores, seconds=seconds)
    detail = ", ".join(images.formats)
    return Stage(name="decode", rates=rates, cpu_seconds=cpu, n_bytes=images.pixel_bytes, detail=detail)


def transform_stage(images: ImageSample, compiled: Compiled, *, cores: Sequence[int], seconds: float) -> Stage:
    """Measure the transforms on decoded images, including the user's functions."""
    pixels = _some_pixels(images, compiled)
    rates, cpu = scaling_of(
        lambda number: _transformed(pixels[number], compiled, number), len(pixels), cores=cores, seconds=seconds
    )
    detail = ", ".join(describe_transforms(compiled)) or "copy"
    return Stage(name="transform", rates=rates, cpu_seconds=cpu, detail=detail)


def batch_stage(images: ImageSample, compiled: Compiled, *, batch_size: int, seconds: float) -> Stage:
    """Measure stacking of samples, which the trainer's own thread does."""
    pixels = _some_pixels(images, compiled)[:batch_size]
    samples = [_transformed(image, compiled, number) for number, image in enumerate(pixels)]
    batch = [samples[number % len(samples)] for number in range(batch_size)]
    timing = timed(lambda _: _stacked(batch), 1, seconds=seconds)
    rates, cpu = (Rate(cores=1, rate=timing.rate * batch_size),), timing.cpu_seconds / batch_size
    return Stage(name="batch", place="trainer", rates=rates, cpu_seconds=cpu, detail="stack")


def _some_pixels(images: ImageSample, compiled: Compiled) -> list[Any]:
    pixels: list[Any] = []
    n_bytes = 0
    for content in images.contents:
        with suppress(*LOAD_ERRORS):
            pixels.append(_decoded(content, compiled))
            n_bytes += pixels[-1].nbytes
        if n_bytes >= MAX_PIXEL_BYTES:
            break
    return pixels
