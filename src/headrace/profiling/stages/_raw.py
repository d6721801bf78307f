# SPDX-License-Identifier: Apache-2.0
"""A loader of plain files, as one would write it by hand with threads: open, read, decode, transform, stack.

What a folder of images gives without being made a dataset; the profile's subject when it is given a folder. The stages
after the reading are here too, each alone with its input in memory.
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
from typing import Any

import numpy as np

from headrace import formats
from headrace.errors import HeadraceError, ProfileError
from headrace.loader.batch.output import OutputName, make_output
from headrace.measuring import ImageSample, scaling_of, timed
from headrace.profiling._measurements import Rate, Stage
from headrace.profiling.stages._instrument import describe_transforms
from headrace.transforms import Compiled

BATCHES_AHEAD = 2
DAMAGED = (HeadraceError, OSError)
"""What a file that cannot be loaded raises."""
# Decoded images that are held for the transforms; pixels are many times the size of files.
MOST_PIXEL_BYTES = 256 << 20


class Throttle:
    """Storage of so many bytes a second, emulated: who asks for more waits. Used by any number of threads."""

    # As much as may come at once after a pause; small beside any batch, large beside the scheduler's slack.
    BURST_SECONDS = 0.01

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._paid_until = -math.inf  # the clock may have begun to run only lately

    def take(self, n_bytes: int, stop: threading.Event | None = None) -> None:
        """Wait until these bytes would have come, or until nobody wants them any more."""
        with self._lock:
            now = time.perf_counter()
            self._paid_until = max(self._paid_until, now - self.BURST_SECONDS) + n_bytes / self._rate
            wait = self._paid_until - now
        if wait > 0:
            (stop or threading.Event()).wait(wait)


@dataclass(frozen=True, slots=True)
class RawSample:
    """A file, or a part of one, that holds an image."""

    name: str
    read: Callable[[], bytes]
    label: int | None = None


class RawLoader:
    """Batches of images from files, in an order drawn anew for each epoch, made by threads ahead of the trainer.

    A file that cannot be loaded leaves its batch shorter and is named in `failures`: a profile is no judge of files.
    A batch that takes longer than `patience` seconds is given with the samples that it has by then.
    """

    def __init__(
        self,
        samples: Sequence[RawSample],
        compiled: Compiled,
        *,
        batch_size: int,
        workers: int,
        output: OutputName = "numpy",
        throttle: Throttle | None = None,
        patience: float = math.inf,
        before_epoch: Callable[[], object] | None = None,
    ) -> None:
        self._samples, self._compiled = samples, compiled
        self.batch_size, self._workers = batch_size, workers
        self._tensor = make_output(output).tensor
        self._throttle, self._patience, self._before_epoch = throttle, patience, before_epoch
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
                good = [sample for sample in self._ready(ahead) if sample is not None]
                if good:
                    given += 1
                    yield self._finished(good)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        if not given and self.failures:
            name, error = next(iter(self.failures.items()))
            raise ProfileError(f"none of the {len(self.failures)} files can be loaded, {name} since: {error}")

    def _ready(self, ahead: deque[list[Future[Any]]]) -> Iterator[Any]:
        """Wait for the samples of the next batch; those that come too late are the next batch's."""
        waiting, end = ahead.popleft(), time.perf_counter() + self._patience
        for position, future in enumerate(waiting):
            if position and time.perf_counter() > end:
                ahead.appendleft(waiting[position:])
                return
            yield future.result()

    def _sample(self, number: int, stop: threading.Event) -> Any:
        """Make one sample; None if it cannot be made."""
        sample = self._samples[number]
        try:
            content = sample.read()
            if self._throttle is not None:
                self._throttle.take(len(content), stop)
            image = decoded(content, self._compiled)
        except DAMAGED as error:
            self.failures[sample.name] = error
            return None
        fields = {} if sample.label is None else {"label": np.int64(sample.label)}
        return transformed(image, self._compiled, number, self._epoch, fields)

    def _finished(self, samples: list[Any]) -> Any:
        batch = stack(samples)
        for function in self._compiled.per_batch:
            batch = function(batch)
        if not isinstance(batch, dict):
            return batch
        return {name: self._tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def decoded(content: bytes, compiled: Compiled) -> Any:
    """Decode a whole image, as one must who does not know the crop beforehand."""
    return formats.decode(content, color="keep" if compiled.color == "keep" else "RGB")


def transformed(
    image: Any, compiled: Compiled, number: int, epoch: int = 0, fields: Mapping[str, Any] | None = None
) -> Any:
    """Put an image through the declarative transforms, and then through the user's functions."""
    pixels: list[Any] = [
        compiled.image.apply(image, seed=0, epoch=epoch, sample=number, view=view) for view in range(compiled.views)
    ]
    sample: Any = {"image": pixels[0] if len(pixels) == 1 else np.stack(pixels), **(fields or {})}
    for function in compiled.per_sample:
        sample = function(sample)
    return sample


def stack(samples: Sequence[Any]) -> Any:
    """Put samples into one batch; those that differ in shape stay a list."""
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
    """Decode whole images, as must be done where the crop is not known beforehand."""

    def decode(number: int) -> None:
        # A damaged file costs an epoch what it costs here: the time until that is found out.
        with suppress(*DAMAGED):
            decoded(images.contents[number], compiled)

    rates, cpu = scaling_of(decode, len(images), cores=cores, seconds=seconds)
    return Stage(
        name="decode", rates=rates, cpu_seconds=cpu, n_bytes=images.pixel_bytes, detail=", ".join(images.formats)
    )


def transform_stage(images: ImageSample, compiled: Compiled, *, cores: Sequence[int], seconds: float) -> Stage:
    """Put decoded images through the transforms, the user's functions included."""
    pixels = _some_pixels(images, compiled)
    rates, cpu = scaling_of(
        lambda number: transformed(pixels[number], compiled, number), len(pixels), cores=cores, seconds=seconds
    )
    return Stage(
        name="transform", rates=rates, cpu_seconds=cpu, detail=", ".join(describe_transforms(compiled)) or "copy"
    )


def batch_stage(images: ImageSample, compiled: Compiled, *, batch_size: int, seconds: float) -> Stage:
    """Stack samples, which the trainer's own thread does when it asks for the batch."""
    pixels = _some_pixels(images, compiled)[:batch_size]
    samples = [transformed(image, compiled, number) for number, image in enumerate(pixels)]
    batch = [samples[number % len(samples)] for number in range(batch_size)]
    timing = timed(lambda _: stack(batch), 1, seconds=seconds)
    return Stage(
        name="batch",
        place="trainer",
        rates=(Rate(cores=1, rate=timing.rate * batch_size),),
        cpu_seconds=timing.cpu_seconds / batch_size,
        detail="stack",
    )


def _some_pixels(images: ImageSample, compiled: Compiled) -> list[Any]:
    pixels: list[Any] = []
    held = 0
    for content in images.contents:
        with suppress(*DAMAGED):
            pixels.append(decoded(content, compiled))
            held += pixels[-1].nbytes
        if held >= MOST_PIXEL_BYTES:
            break
    return pixels
