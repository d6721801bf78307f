# SPDX-License-Identifier: Apache-2.0
"""Our own figures on a device: the kernels alone, the copy, both with the host's work, and a loader's epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import headrace
from benchmarks._codec.images import Pixels
from benchmarks._gpu.verify import MEAN, MODES, STD
from headrace import kernels
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop


def best_seconds(call: Callable[[], Any], rounds: int) -> float:
    """The best wall time of a call that ends when the device has nothing left to do."""
    best = float("inf")
    for _ in range(rounds + 1):  # the first one compiles and warms
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return best


def row(
    decoder: str, form: str, pictures: Sequence[Pixels], encoded_bytes: int, seconds: float, **more: Any
) -> dict[str, Any]:
    """A line of the results: rates of images, of pixels' bytes that come out, and of encoded bytes that go in."""
    raw_bytes = sum(picture.nbytes for picture in pictures)
    return {
        "decoder": decoder,
        "format": form,
        "images_per_second": len(pictures) / seconds,
        "pixel_gigabytes_per_second": raw_bytes / seconds / 1e9,
        "encoded_gigabytes_per_second": encoded_bytes / seconds / 1e9,
        "of_raw": encoded_bytes / raw_bytes,
        **more,
    }


def our_rows(pictures: Sequence[Pixels], device: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Decode all pictures as one batch, in each mode, to uint8 and to the normalised tensor."""
    for mode in MODES:
        datas = [headrace.encode(picture, mode=mode) for picture in pictures]
        n_bytes = sum(map(len, datas))
        for name, ending in (("uint8", {}), ("float16 normalised", {"dtype": "float16", "mean": MEAN, "std": STD})):
            prepared = kernels.stage_batch(datas, pin=True, **ending)
            buffer = prepared.buffer.to(device)
            status = torch.zeros(len(datas), dtype=torch.int32, device=device)

            def decode(prepared: Any = prepared, buffer: Any = buffer, status: Any = status) -> None:
                kernels.decode_staged(prepared, buffer, status=status)

            seconds = best_seconds(decode, rounds)
            kernels.check_status(status)
            yield row("headrace, kernels", f"hri:{mode}", pictures, n_bytes, seconds, ending=name)

            def whole(ending: Any = ending, datas: Any = datas) -> None:
                kernels.decode_batch(datas, device=device, **ending)

            yield row(
                "headrace, with the host", f"hri:{mode}", pictures, n_bytes, best_seconds(whole, rounds), ending=name
            )
        staged = prepared.buffer

        def copy(staged: Any = staged) -> None:
            staged.to(device, non_blocking=True)

        yield row("headrace, copy", f"hri:{mode}", pictures, staged.numel(), best_seconds(copy, rounds), ending="bytes")


def loader_rows(path: Path, form: str, device: str, epochs: int, batch_size: int) -> Iterator[dict[str, Any]]:
    """Images a second of a loader that decodes on the CPU, and of one that decodes on the device."""
    transform = [RandomResizedCrop(224), HorizontalFlip(), Normalize(MEAN, STD)]
    for place in ("cpu", "device"):
        with headrace.Loader(
            path, batch_size=batch_size, shuffle=True, transform=transform, device=device, decode=place
        ) as loader:
            images, seconds = 0, 0.0
            for epoch in range(epochs + 1):
                torch.cuda.synchronize()
                begun = time.perf_counter()
                count = sum(len(batch["image"]) for batch in loader)
                torch.cuda.synchronize()
                if epoch > 0:  # the first one compiles, and fills the page cache
                    images, seconds = images + count, seconds + time.perf_counter() - begun
            yield {"loader": f"decode={place!r}", "format": form, "images_per_second": images / seconds}
