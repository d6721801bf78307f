# SPDX-License-Identifier: Apache-2.0
"""After the self-test of a device no launch compiles, whatever sizes, formats and slices a loader's batches have."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

import headrace
from headrace.kernels import DeviceUse, _selftest
from headrace.transforms import HorizontalFlip, Normalize, RandomCrop, RandomResizedCrop

pytestmark = pytest.mark.compiled
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


@pytest.fixture
def compiles(monkeypatch):
    """The names of the kernels that a launch compiled."""
    from triton import knobs  # noqa: PLC0415 - not for a process that interprets

    names = []
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **given: names.append(given["fn"].name) and None)
    return names


def write(path, dtypes):
    """Images of many sizes and contents, in both modes and as PNG."""
    rng = np.random.default_rng(3)
    shares = [
        {"format": form, "share": share} for form, share in (("hri:fast", 0.45), ("hri:dense", 0.45), ("png", 0.1))
    ]
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
    with headrace.Writer(path, fields={"image": "image", "label": "int64"}, plan=plan, workers=1) as writer:
        for number in range(36):
            dtype = dtypes[number % len(dtypes)]
            height, width = int(rng.integers(20, 60)), int(rng.choice([20, 33, 90, 150, 270]))
            content = ("smooth", "few colors", "noise", "flat")[number % 4]
            image = np.resize(_selftest.picture(content, dtype, sparse=number % 3 == 0), (height, width, 3))
            writer.write({"image": image, "label": number}, key=f"{number}")
    return path


@pytest.mark.parametrize("dtypes", [("uint8",), ("uint8", "uint16")], ids=["narrow", "mixed depths"])
@pytest.mark.parametrize("resizes", [False, True], ids=["cut", "resized"])
def test_an_epoch_compiles_nothing_after_the_self_test(dtypes, resizes, tmp_path, make_executor, compiles):
    executor = make_executor()
    path = write(tmp_path / "mixed.hr", dtypes)
    crop = RandomResizedCrop(16) if resizes else RandomCrop((18, 17))
    use = DeviceUse(
        frozenset(dtypes),
        frozenset({None, "float32"} if resizes else {"float32"}),
        frozenset({"float32"} if resizes else ()),
    )
    assert _selftest.self_test(torch.device("cpu"), use) is None
    compiles.clear()
    before = sum(executor.launches.values())
    transform = [crop, HorizontalFlip(), Normalize(MEAN, STD)]
    with headrace.Loader(
        path, batch_size=5, shuffle=True, transform=transform, device="cpu", decode="device", drop_last=False
    ) as loader:
        batches = list(loader)

    assert len(batches) == 8
    assert sum(executor.launches.values()) >= before + 3 * len(batches)
    assert compiles == []


def test_a_compilation_is_noticed(make_executor, compiles):
    make_executor()
    finish_kernel = import_module("headrace.kernels.finish.triton").finish_kernel
    finish_kernel.device_caches.clear()
    headrace.kernels.decode_batch([headrace.encode(np.zeros((2, 2), np.uint8))], device="cpu", backend="triton")

    assert [name.rpartition(".")[2] for name in compiles] == ["finish_kernel"]


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_slices_of_status_and_output_compile_nothing(offset, make_executor, compiles):
    make_executor()
    data = headrace.encode(_selftest.picture("smooth", "uint8", sparse=False))
    room, status = torch.zeros(3 * 37 * 70 + 4, dtype=torch.uint8), torch.zeros(5, dtype=torch.int32)
    out = room[offset : offset + 3 * 37 * 70].view(1, 3, 37, 70)
    headrace.kernels.decode_batch([data], device="cpu", out=out, status=status[offset : offset + 1], backend="triton")
    if offset > 0:
        assert compiles == []
    assert np.array_equal(out[0].numpy().transpose(1, 2, 0), headrace.decode(data))
