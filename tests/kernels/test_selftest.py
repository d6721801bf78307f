# SPDX-License-Identifier: Apache-2.0
"""The self-test of a device: its images have every kind of tile, and a device that is wrong anywhere does not pass."""

from __future__ import annotations

import types

import pytest
import torch

from headrace.codec import encode
from headrace.kernels import DeviceUse, _selftest, backend, stage_batch
from headrace.kernels._selftest import CONTENTS, picture, reason_against_device, self_test
from headrace.kernels.tables import TileField, TileKind

CPU = torch.device("cpu")
BYTES = DeviceUse(frozenset({"uint8"}), frozenset({None}), frozenset())
EVERYTHING = DeviceUse(
    frozenset({"uint8", "uint16", "int16"}),
    frozenset({None, "float32"}),
    frozenset({None, "uint8", "float16", "float32"}),
)


def tiles_of(data):
    staged = stage_batch([data])
    return set(staged.parts["tiles"].of_host(staged.buffer)[TileField.KIND].tolist())


@pytest.mark.parametrize("stored", sorted(EVERYTHING.stored))
@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_every_kind_of_tile_is_tested(stored, mode):
    own = TileKind.PACKED if mode == "fast" else TileKind.CODED
    kinds = [tiles_of(encode(picture(content, stored, sparse=False), mode=mode)) for content in CONTENTS]

    assert kinds[:3] == [{TileKind.CONSTANT}, {TileKind.RAW}, {TileKind.PALETTE}]
    assert own in kinds[3]
    assert kinds[4] == {own}


@pytest.mark.parametrize("stored", sorted(EVERYTHING.stored))
def test_batches_are_narrow_and_wide_with_and_without_ranks(stored):
    """Each is a variant of the kernels."""
    variants = set()
    for contents, sparse in _selftest._batches(stored):
        staged = stage_batch([encode(picture(content, stored, sparse=sparse)) for content in contents])
        variants.add((staged.wide, staged.parts["ranks"].shape[0] > 0))

    assert variants == (
        {(False, False), (False, True)} if stored == "uint8" else {(True, False), (True, True), (False, True)}
    )


@pytest.mark.parametrize(("stored", "made"), [("uint8", None), ("int16", "float32")])
def test_plain_pytorch_passes(stored, made):
    assert self_test(CPU, DeviceUse(frozenset({stored}), frozenset({made}), EVERYTHING.resized)) is None


def test_a_wrong_pixel_fails(monkeypatch):
    decode = _selftest.decode_batch

    def nearly(*args, **options):
        images = decode(*args, **options)
        images[-1, 2, 36, 69] ^= 1
        return images

    monkeypatch.setattr(_selftest, "decode_batch", nearly)
    assert self_test(CPU, BYTES) == ("the self-test on cpu decoded wrong pixels: smooth, uint8 to uint8, mode dense")


def test_a_wrong_resize_fails(monkeypatch):
    resize = _selftest.resize_batch
    calls = []

    def wrong(*args, **options):
        calls.append(1)
        made = resize(*args, **options)
        return made if len(calls) > 1 else made + 3

    monkeypatch.setattr(_selftest, "resize_batch", wrong)
    use = DeviceUse(frozenset({"uint8"}), frozenset(), frozenset({None}))
    assert self_test(CPU, use) == "the self-test on cpu resized to wrong pixels: uint8 to uint8"


def test_an_exception_of_the_device_fails(monkeypatch):
    def broken(*_args, **_options):
        raise RuntimeError("an illegal memory access\nwas encountered")

    monkeypatch.setattr(_selftest, "decode_batch", broken)
    assert self_test(CPU, BYTES) == "the self-test on cpu failed with RuntimeError: an illegal memory access"


@pytest.fixture
def cuda(monkeypatch):
    """A stand-in for a GPU of compute capability 8.6."""
    properties = types.SimpleNamespace(name="Stand-in", gcnArchName="gfx942:sramecc+")
    fake = types.SimpleNamespace(
        is_available=lambda: True,
        get_device_capability=lambda _device: (8, 6),
        get_device_properties=lambda _device: properties,
    )
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_the_result_is_kept_for_each_device(monkeypatch):
    pytest.importorskip("triton")
    tested = []
    monkeypatch.setattr(_selftest, "self_test", lambda *asked: tested.append(asked))
    reason_against_device.cache_clear()
    for number in (0, 1, 0):
        assert reason_against_device(torch.device("cuda", number), BYTES) is None
    reason_against_device.cache_clear()

    assert [device.index for device, _ in tested] == [0, 1]


@pytest.mark.parametrize(
    ("device", "changes", "words"),
    [
        ("cuda", {}, None),
        ("cuda", {"get_device_capability": lambda _device: (7, 5)}, "compute capability 8.0 or higher; cuda has 7.5"),
        ("cuda", {"is_available": lambda: False}, "finds no CUDA or ROCm device"),
        ("xpu", {}, "not compiled for devices of type 'xpu'"),
        ("cpu", {}, "not compiled for devices of type 'cpu'"),
    ],
)
def test_devices_that_are_compiled_for(device, changes, words, cuda):
    vars(cuda).update(changes)
    found = backend.reason_not_compiled_for(torch.device(device))

    assert found is None if words is None else words in found


@pytest.mark.parametrize(("name", "known"), [("gfx942:sramecc+", True), ("gfx1100", False)])
def test_amd_devices_that_are_compiled_for(name, known, cuda, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    cuda.get_device_properties = lambda _device: types.SimpleNamespace(gcnArchName=name)

    assert (backend.reason_not_compiled_for(torch.device("cuda")) is None) == known
