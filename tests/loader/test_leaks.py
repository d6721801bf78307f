# SPDX-License-Identifier: Apache-2.0
"""Epochs that are broken off, fail and start again, many times over: nothing grows."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from pathlib import Path

import pytest
from tests.loader.datasets import handle_count, thread_count

import headrace
from headrace.transforms import HorizontalFlip, RandomResizedCrop

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts in /proc")

CROP = [RandomResizedCrop(64), HorizontalFlip()]


class Tripping:
    """A function that raises now and then."""

    def __init__(self, rng):
        self._rng = rng

    def __call__(self, sample):
        if self._rng.random() < 0.02:
            raise ZeroDivisionError
        return sample


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def abuse(loader, rng, kept):
    """Run one epoch to a random end."""
    ending = rng.choice(["end", "break", "raise", "close", "replace", "keep"])
    stop = rng.randint(1, len(loader))
    try:
        iteration = iter(loader)
        for number, batch in enumerate(iteration, 1):
            if ending == "keep" and number == 1:
                kept[:] = [batch]  # the last epoch's is let go
            if number == stop and ending == "raise":
                _ = 1 / 0
            if number == stop and ending == "replace":
                next(iter(loader))
            if number == stop and ending != "end":
                break
        if ending == "close":
            iteration.close()
    except ZeroDivisionError:
        pass


def run(path, epochs):
    """Abuse loaders for some epochs, a new one every fifteen; give what there is of threads, handles and memory."""
    rng = random.Random(4)
    figures = []
    kept = []
    loader = None
    for epoch in range(epochs):
        if epoch % 15 == 0:
            if loader is not None and rng.random() < 0.5:
                loader.close()
            transform = [*CROP, Tripping(rng)] if epoch % 30 else CROP
            options = {"transform": transform, "num_workers": rng.randint(1, 3), "batch_size": rng.randint(1, 8)}
            loader = headrace.Loader(path, output="numpy", shuffle=True, batches_ahead=rng.randint(1, 4), **options)
        abuse(loader, rng, kept)
        if epoch % 15 == 14:
            loader.close()
            kept.clear()
            gc.collect()
            figures.append((thread_count(), handle_count(), resident_bytes()))
            threads, handles, resident = figures[-1]
            print(f"epoch {epoch + 1}: {threads} threads, {handles} handles, {resident >> 10} KiB")  # noqa: T201
    return figures


def test_a_few_dozen_epochs_leave_no_thread_and_no_handle(path):
    figures = run(path, 60)

    assert {(threads, handles) for threads, handles, _ in figures} == {figures[0][:2]}


@pytest.mark.slow
def test_three_hundred_epochs_leave_nothing(path):
    """Run with -s to see the figures."""
    begun = time.monotonic()
    run(path, 60)
    figures = run(path, 300)
    print(f"{time.monotonic() - begun:.0f} s")  # noqa: T201

    assert {(threads, handles) for threads, handles, _ in figures} == {figures[0][:2]}
    # The first rounds fill the allocator's arenas; after that memory may flicker by a few buffers.
    assert max(resident for *_, resident in figures[10:]) - max(resident for *_, resident in figures[:10]) < 4 << 20
