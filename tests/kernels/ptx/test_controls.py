# SPDX-License-Identifier: Apache-2.0
"""Positive controls: kernels that are broken on purpose are caught, each by the check that is there for it."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.adversarial import specimens
from tests.codec.pictures import Recipe
from tests.kernels import test_images
from tests.kernels.ptx.barriers import redundant_barriers
from tests.kernels.ptx.syntax import parse

import headrace
from headrace.kernels import DeviceUse, decode_batch
from headrace.kernels._selftest import self_test

pytestmark = pytest.mark.compiled
NEIGHBOURS = ("north", "north_west", "north_east")
DEFECT = (
    "".join(f"    {name} = tl.broadcast_to(start, (ops.ROWS, CHAINS))\n" for name in NEIGHBOURS),
    "".join(f"    {name} = west\n" for name in NEIGHBOURS),
)
"""Sound text of the wave kernel, and what makes three variables begin as one value."""


def encoded(mode):
    """Sides that fill neither tiles nor blocks nor groups."""
    return headrace.encode(Recipe(37, 70, 3, content="smooth").render(), mode=mode)


def decoded_right(data):
    [image] = decode_batch([data], device="cpu", backend="triton", status=torch.zeros(1, dtype=torch.int32))
    return np.array_equal(image.numpy(), test_images.expected_of(data))


def replace_source(monkeypatch, tmp_path, module, kernel, old, new):
    """Compile a kernel from its source with one piece of text replaced."""
    original = import_module(module)
    text = Path(original.__file__).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is in the source once"
    path = tmp_path / "changed.py"
    path.write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location("changed", path)
    changed = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "changed", changed)
    spec.loader.exec_module(changed)
    sound = getattr(original, kernel)
    for name, loaded in list(sys.modules.items()):
        if name.startswith("headrace.kernels.") and getattr(loaded, kernel, None) is sound:
            monkeypatch.setattr(loaded, kernel, getattr(changed, kernel))


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_the_images_of_this_file_are_decoded_right_by_sound_kernels(mode, make_executor):
    make_executor()
    assert decoded_right(encoded(mode))


def test_variables_that_begin_as_one_value_decode_wrong_pixels(make_executor, monkeypatch, tmp_path):
    """Triton does not carry them round the loop, and reports nothing: only the pixels show it."""
    make_executor()
    replace_source(monkeypatch, tmp_path, "headrace.kernels.wave.triton", "wave_kernel", *DEFECT)
    assert not decoded_right(encoded("dense"))


def test_the_self_test_of_a_device_finds_the_same_defect(make_executor, monkeypatch, tmp_path):
    """So `decode="auto"` would not have chosen a device with such kernels."""
    make_executor()
    replace_source(monkeypatch, tmp_path, "headrace.kernels.wave.triton", "wave_kernel", *DEFECT)
    use = DeviceUse(frozenset({"uint8"}), frozenset({None}), frozenset())

    assert "decoded wrong pixels: " in self_test(torch.device("cpu"), use)


@pytest.mark.parametrize(
    ("kernel", "mode"),
    [("packed_index_kernel", "fast"), ("coded_index_kernel", "dense"), ("coded_numbers_kernel", "dense")],
)
def test_a_kernel_without_its_barriers_races(kernel, mode, make_executor):
    make_executor(edit=lambda name, ptx: ptx.replace("bar.sync", "// bar.sync") if name == kernel else ptx)
    with pytest.raises(AssertionError, match=f"{kernel}.*\n.*race in"):
        decoded_right(encoded(mode))


def several_of_each_kind():
    """Images whose tiles are as wide as tiles can be and need more than one turn of each loop around a barrier."""
    wide = [(specimens.packed, "fast", "smooth"), (specimens.coded, "dense", "smooth")]
    datas = [specimens.file(Recipe(34, 256, 3, content=content), tile, mode) for tile, mode, content in wide]
    datas.append(specimens.file(Recipe(34, 256, 3, content="rectangles"), specimens.palette, "dense"))
    noisy = np.random.default_rng(7).normal(128, 20, (40, 256, 3)).clip(0, 255).astype(np.uint8)
    return [*datas, *(headrace.encode(noisy, mode=mode) for mode in ("fast", "dense"))]


def test_every_barrier_is_missed_or_redundant(make_executor):
    """Remove one barrier at a time: a race is found, or the control flow proves that nothing needed it."""
    datas, launched = several_of_each_kind(), {}

    def decode():
        images = decode_batch(datas, device="cpu", backend="triton", status=torch.zeros(len(datas), dtype=torch.int32))
        assert all(np.array_equal(a.numpy(), test_images.expected_of(b)) for a, b in zip(images, datas, strict=True))

    make_executor(edit=lambda name, ptx: launched.setdefault((name, ptx), ptx))
    decode()
    missed, redundant = [], 0
    for kernel in launched:
        lines = kernel[1].split("\n")
        for line, proved in redundant_barriers(parse(kernel[1])).items():
            changed = "\n".join([*lines[: line - 1], "", *lines[line:]])
            make_executor(edit=lambda name, ptx, own=kernel, new=changed: new if (name, ptx) == own else ptx)
            redundant += proved
            try:
                decode()
            except AssertionError:
                assert not proved, f"{kernel[0]}, line {line}: races although it was proved redundant"
            else:
                missed += [] if proved else [f"{kernel[0]}, line {line}: {lines[line - 1]}"]

    assert missed == []
    assert redundant > 0


@pytest.mark.parametrize(
    ("module", "kernel", "mode", "old", "new"),
    [
        ("coded._index", "coded_index_kernel", "dense", "(x < across)", "(x <= across)"),
        ("finish.triton", "finish_kernel", "fast", "& (x < columns)", "& (x <= columns)"),
        ("finish.triton", "finish_kernel", "dense", "& (y < rows)", "& (y <= rows)"),
    ],
)
def test_an_index_one_too_far_is_caught(module, kernel, mode, old, new, make_executor, monkeypatch, tmp_path):
    """As an access outside of the tensors, or as two threads or programs that write to one place."""
    make_executor()
    replace_source(monkeypatch, tmp_path, f"headrace.kernels.{module}", kernel, old, new)
    with pytest.raises(AssertionError, match=r"access outside|race in a program|race between"):
        decoded_right(encoded(mode))


def test_a_load_one_byte_beyond_its_tile_is_caught(make_executor, monkeypatch, tmp_path):
    make_executor()
    module, bound = "headrace.kernels.wave.triton", "mask=ops.is_below(at, length)"
    replace_source(monkeypatch, tmp_path, module, "wave_kernel", bound, bound.replace("at", "at - 1"))
    datas = [specimens.file(Recipe(8, 8, 1, seed=seed), specimens.packed, "fast") for seed in range(8)]
    with pytest.raises(AssertionError, match="access outside of its tensors"):
        decode_batch(datas, device="cpu", backend="triton")
