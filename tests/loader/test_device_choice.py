# SPDX-License-Identifier: Apache-2.0
"""`decode="auto"` takes a GPU only after the GPU has decoded test images right."""

from __future__ import annotations

import types
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")
# Not imported here: the tests of the kernels have to say first whether it interprets.
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

from tests.loader.datasets import write  # noqa: E402

import headrace  # noqa: E402
from headrace import kernels  # noqa: E402
from headrace.loader.device import _choice as _device_choice  # noqa: E402
from headrace.loader.device._transfer import Transfer  # noqa: E402
from headrace.transforms import Normalize, RandomCrop, RandomResizedCrop  # noqa: E402


@pytest.fixture
def gpu(monkeypatch):
    """A device whose self-test gives `reason`; `asked` lists what it was tested for."""
    found = types.SimpleNamespace(reason=None, asked=[])

    def tested(_device, use):
        found.asked.append(use)
        return found.reason

    monkeypatch.setattr(_device_choice, "_MIN_BYTES", 1)
    monkeypatch.setattr(kernels, "reason_not_compiled_for", lambda _device: None)
    monkeypatch.setattr(kernels, "reason_against_device", tested)
    monkeypatch.setattr(Transfer, "find_device", lambda _transfer: None)
    return found


@pytest.fixture
def dataset(tmp_path):
    return write(tmp_path / "some.hr", 6, formats=("hri:fast", "hri:dense", "png"))


def test_a_gpu_that_passes_its_test_decodes(dataset, gpu):
    loader = headrace.Loader(dataset, device="cuda")

    assert gpu.asked == [], "making a loader starts nothing"
    assert loader.decode_place == "device"
    assert loader.decode_place == "device"
    assert len(gpu.asked) == 1


def test_a_gpu_that_fails_its_test_does_not_decode_and_one_warning_says_so(dataset, gpu):
    gpu.reason = "the self-test on cuda:0 decoded wrong pixels"
    loader = headrace.Loader(dataset, device="cuda")
    with pytest.warns(RuntimeWarning, match="decoded on the CPU, not on cuda: the self-test") as caught:
        assert loader.decode_place == "cpu"

    assert loader.decode_place == "cpu"
    assert len(caught) == 1


def test_a_gpu_that_fails_its_test_and_is_insisted_on_is_an_error(dataset, gpu):
    gpu.reason = "the self-test on cuda:0 decoded wrong pixels"
    loader = headrace.Loader(dataset, device="cuda", decode="device")
    with pytest.raises(ValueError, match="decode='device' cannot be done: the self-test on cuda:0"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("options", "decoded", "resized"),
    [
        ({"fields": ["image"]}, {None}, set()),
        ({"fields": ["image"], "dtype": "float16"}, {"float16"}, set()),
        ({"fields": ["image"], "transform": [RandomCrop(8), Normalize(0.5, 0.5)]}, {"float32"}, set()),
        (
            {"fields": ["image"], "transform": [RandomResizedCrop(8), Normalize(0.5, 0.5)]},
            {None, "float32"},
            {"float32"},
        ),
        ({"fields": ["image", "mask"], "transform": [Normalize(0.5, 0.5)]}, {None, "float32"}, set()),
        ({"fields": ["mask"], "transform": [RandomResizedCrop(8)]}, {None}, set()),
    ],
)
def test_it_is_tested_for_what_the_loader_does(dataset, gpu, options, decoded, resized):
    assert headrace.Loader(dataset, device="cuda", **options).decode_place == "device"
    [use] = gpu.asked

    assert (use.decoded, use.resized, use.stored) == (decoded, resized, {"uint8"})


def test_it_is_tested_for_the_dtypes_of_all_samples(tmp_path, gpu):
    with headrace.Writer(tmp_path / "deep.hr", fields={"image": "image"}, workers=1) as writer:
        for number in range(300):
            writer.write({"image": np.zeros((2, 2), np.uint16 if number == 299 else np.uint8)})
    assert headrace.Loader(tmp_path / "deep.hr", device="cuda").decode_place == "device"

    assert gpu.asked[0].stored == {"uint8", "uint16"}


def test_some_samples_may_be_loaded_many_times(dataset, gpu):
    """The size of the images is estimated from the loaded samples, however often each of them is loaded."""
    assert headrace.Loader(dataset, device="cuda", indices=[0, 1] * 40).decode_place == "device"
    assert len(gpu.asked) == 1


def test_devices_that_the_kernels_were_never_compiled_for_are_not_chosen(dataset, gpu, monkeypatch):
    assert headrace.Loader(dataset, device="xpu").decode_place == "cpu"
    monkeypatch.setattr(kernels, "reason_not_compiled_for", lambda _device: "it has compute capability 7.5")
    with pytest.warns(RuntimeWarning, match="not on cuda: it has compute capability 7.5"):
        assert headrace.Loader(dataset, device="cuda").decode_place == "cpu"

    assert gpu.asked == []


def test_such_a_device_may_be_insisted_on_and_is_tested(dataset, gpu, monkeypatch):
    monkeypatch.setattr(kernels, "reason_not_compiled_for", lambda _device: "it has compute capability 7.5")

    assert headrace.Loader(dataset, device="cuda", decode="device").decode_place == "device"
    assert len(gpu.asked) == 1
