# SPDX-License-Identifier: Apache-2.0
"""Decoding on the device gives the batches of the CPU: the same order, draws and pixels, whatever the formats."""

from __future__ import annotations

import pickle
import types
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.kernels import devices, interpreter  # noqa: E402 - needs PyTorch
from tests.loader.datasets import write  # noqa: E402

import headrace  # noqa: E402
from headrace import kernels  # noqa: E402
from headrace.kernels import backend  # noqa: E402
from headrace.loader import limit_storage  # noqa: E402
from headrace.loader.device import _choice as _device_choice  # noqa: E402
from headrace.loader.device._choice import device_formats  # noqa: E402
from headrace.loader.device._transfer import Transfer  # noqa: E402
from headrace.records import Boxes  # noqa: E402
from headrace.storage import Pace  # noqa: E402
from headrace.transforms import (  # noqa: E402
    CenterCrop,
    ColorJitter,
    HorizontalFlip,
    Mosaic,
    Normalize,
    Pad,
    PerBatch,
    RandomCrop,
    RandomIoUCrop,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    VerticalFlip,
    Views,
)

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
FORMATS = ("hri:fast", "hri:dense", "png", "jpeg", "raw")
EXACT = {
    "whole": [],
    "crop": [RandomCrop(20), HorizontalFlip(), Normalize(MEAN, STD)],
    "both flips": [VerticalFlip(), CenterCrop((16, 20)), HorizontalFlip()],
    "views": [Views(2, [RandomCrop((18, 12)), VerticalFlip()])],
    "some stick out": [CenterCrop(40), HorizontalFlip()],
}
RESIZED = {
    "random crop": [RandomResizedCrop(16), HorizontalFlip()],
    "normalised": [RandomResizedCrop((14, 18)), HorizontalFlip(), Normalize(MEAN, STD)],
    "shorter side": [Resize(24), CenterCrop(20), VerticalFlip()],
    "only resized": [Resize(20)],
    "larger": [Resize((70, 64)), RandomCrop(33)],
    "views": [Views(2, [RandomResizedCrop(12), VerticalFlip()])],
}


@pytest.fixture(scope="session")
def mixed(tmp_path_factory):
    """Twelve samples with images in all formats, and masks."""
    return write(tmp_path_factory.mktemp("device") / "mixed.hr", 12, formats=FORMATS)


@pytest.fixture(scope="session")
def deep(tmp_path_factory):
    """Images of 8 and 16 bits, grey and in colour, in lossless formats."""
    path = tmp_path_factory.mktemp("device") / "deep.hr"
    shares = [{"format": form, "share": 0.25} for form in ("hri:fast", "hri:dense", "raw", "png")]
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
    rng = np.random.default_rng(5)
    with headrace.Writer(path, fields={"image": "image", "label": "int64"}, plan=plan, workers=1) as writer:
        for number in range(8):
            dtype, channels = (np.uint8, np.uint16)[number % 2], (1, 3)[number // 2 % 2]
            steps = rng.integers(0, 9 if dtype == np.uint8 else 999, (30, 40, channels))
            writer.write({"image": np.cumsum(steps, axis=1).astype(dtype), "label": number}, key=f"deep/{number}")
    return path


@pytest.fixture(autouse=True)
def _plain_pytorch(monkeypatch):
    """Quicker than Triton's interpreter, which has a test of its own; and memory that nobody wrote shows."""
    monkeypatch.setattr(backend, "interprets", lambda: False)
    empty = torch.empty

    def poisoned(*args, **options):
        tensor = empty(*args, **options)
        if tensor.numel() and tensor.device.type != "meta":
            tensor.view(-1).view(torch.uint8).fill_(0xCD)
        return tensor

    monkeypatch.setattr(torch, "empty", poisoned)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def loaders(path, **options):
    """The same loader twice: the CPU decodes, the device decodes."""
    options = {"batch_size": 7, "shuffle": True, "seed": 7, "num_workers": 2, **options}
    return headrace.Loader(path, decode="cpu", **options), headrace.Loader(
        path, decode="device", device="cpu", **options
    )


def assert_same(found, expected, most=0.0, where=""):
    """The same structure, shapes, dtypes and values; images of float or integer within `most`."""
    assert type(found) is type(expected), where
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_same(found[name], expected[name], most if name == "image" else 0, name)
    elif isinstance(expected, Boxes | list | tuple):
        assert len(found) == len(expected), where
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, most, where)
    elif isinstance(expected, torch.Tensor):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), where
        assert found.is_contiguous()
        if expected.numel():
            assert (found.double() - expected.double()).abs().max() <= most, where
    else:
        assert found == expected, where


def assert_epochs_agree(path, most=0.0, epochs=1, **options):
    on_cpu, on_device = loaders(path, **options)
    with on_cpu, on_device:
        for _ in range(epochs):
            for found, expected in zip(on_device, on_cpu, strict=True):
                assert_same(found, expected, most)
        return on_device.stats()


@pytest.mark.parametrize("transform", EXACT.values(), ids=EXACT)
def test_without_a_resize_every_bit_is_the_same(mixed, transform):
    stats = assert_epochs_agree(mixed, transform=transform)
    assert 0 < stats.images_on_device < stats.images


@pytest.mark.parametrize("name", ["whole", "both flips", "views"])
def test_channels_may_come_last(mixed, name):
    assert_epochs_agree(mixed, transform=EXACT[name], layout="HWC")


@pytest.mark.parametrize("transform", RESIZED.values(), ids=RESIZED)
def test_after_a_resize_levels_are_within_one(mixed, transform):
    normalised = any(isinstance(item, Normalize) for item in transform)
    most = (1 / 255 + 1e-6) / min(STD) if normalised else 1
    stats = assert_epochs_agree(mixed, most, transform=transform)
    assert stats.images_on_device > 0


@pytest.mark.parametrize(
    ("color", "dtype"),
    [("keep", None), ("keep", "uint8"), ("keep", "float32"), ("RGB", None), ("RGB", "uint16"), ("RGB", "float16")],
)
def test_depths_mix(deep, color, dtype):
    assert_epochs_agree(deep, transform=[RandomCrop(20), VerticalFlip()], dtype=dtype, color=color)


@pytest.mark.parametrize("color", ["keep", "RGB"])
def test_depths_mix_and_are_resized(deep, color):
    assert_epochs_agree(deep, 1, transform=[RandomResizedCrop(12)], color=color)


def test_epochs_draw_anew(mixed):
    assert_epochs_agree(mixed, epochs=2, transform=[RandomCrop(8), HorizontalFlip()])


def test_a_state_goes_on_with_either(mixed):
    """Where images are decoded is no part of the state."""
    on_cpu, on_device = loaders(mixed, transform=[RandomCrop(8)], batch_size=4)
    with on_cpu, on_device:
        next(iter(on_cpu))
        on_device.load_state_dict(on_cpu.state_dict())
        rest = list(on_device)
        fresh, _ = loaders(mixed, transform=[RandomCrop(8)], batch_size=4)
        with fresh:
            assert_same(rest, list(fresh)[1:])


@pytest.mark.parametrize("ragged", ["list", "pad"])
def test_images_of_differing_shape(mixed, ragged):
    assert_epochs_agree(mixed, ragged=ragged, fields=["image", "mask", "label"])


def test_functions_get_what_the_device_made(mixed):
    """Of samples, of batches, and in place of stacking."""

    def halved(sample):
        return {**sample, "image": sample["image"].float() / 2}

    def with_sum(batch):
        return {**batch, "sum": batch["image"].sum()}

    assert_epochs_agree(mixed, transform=[CenterCrop(8), halved, PerBatch(with_sum)])
    assert_epochs_agree(mixed, transform=[CenterCrop(8)], collate_fn=list, fields=["image", "label"])


def test_a_loader_can_be_pickled(mixed):
    on_cpu, on_device = loaders(mixed, transform=[CenterCrop(8)])
    with on_cpu, on_device, pickle.loads(pickle.dumps(on_device)) as again:
        assert again.decode_place == "device"
        assert_same(next(iter(again)), next(iter(on_cpu)))


def test_of_a_large_image_only_the_tiles_of_the_crop_are_read(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (700, 900), np.uint8)
    with headrace.Writer(tmp_path / "large.hr", fields={"image": "image"}, workers=1) as writer:
        writer.write({"image": image})
    n_bytes = headrace.open(tmp_path / "large.hr").read(0, "image")[1].n_bytes
    stats = assert_epochs_agree(tmp_path / "large.hr", transform=[RandomCrop(40)], batch_size=1)
    assert stats.images_on_device == 1
    assert n_bytes > 500_000
    assert stats.bytes_read < n_bytes / 3


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_interpreter_agrees(mixed, monkeypatch):
    """Triton's own kernels, interpreted: a batch of all formats and of masks."""
    monkeypatch.setattr(backend, "interprets", lambda: not devices.HAS_GPU)
    with interpreter.quick():
        assert_epochs_agree(mixed, transform=[RandomCrop(20), HorizontalFlip()], indices=range(6), batch_size=6)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("transform", [EXACT["crop"], RESIZED["normalised"]], ids=["crop", "resized"])
def test_the_interpreter_agrees_over_an_epoch(mixed, deep, transform, monkeypatch):
    monkeypatch.setattr(backend, "interprets", lambda: not devices.HAS_GPU)
    most = (1 / 255 + 1e-6) / min(STD) if transform is RESIZED["normalised"] else 0
    with interpreter.quick():
        assert_epochs_agree(mixed, most, transform=transform)
        assert_epochs_agree(deep, most, transform=transform, color="RGB")


CHOICES = {
    "color": ({"transform": [ColorJitter(0.1)]}, "not support ColorJitter"),
    "pad": ({"transform": [Pad(2)]}, "not support Pad"),
    "warp": ({"transform": [RandomCrop(8), RandomRotation(10)]}, "not support RandomRotation"),
    "mosaic": ({"transform": [Mosaic(8)]}, "not support Mosaic"),
    "boxes": ({"transform": [RandomIoUCrop()]}, "not support RandomIoUCrop"),
    "padding": ({"transform": [RandomCrop(8, padding=2)]}, "padding of RandomCrop"),
    "interpolation": ({"transform": [Resize(9, interpolation="bicubic")]}, "bilinear"),
    "antialias": ({"transform": [Resize(9, antialias=False)]}, "antialias"),
    "twice": ({"transform": [Resize(40), RandomResizedCrop(8)]}, "2 times"),
    "views": ({"transform": [Views(2, [ColorJitter(0.1)])]}, "not support ColorJitter"),
    "output": ({"output": "numpy", "device": None}, "no device is given"),
    "fields": ({"fields": ["label"]}, "no image or mask in the format hri"),
}


@pytest.mark.parametrize(("options", "words"), CHOICES.values(), ids=CHOICES)
def test_what_a_device_cannot_do_is_said(mixed, options, words):
    with pytest.raises(ValueError, match=words):
        headrace.Loader(mixed, **{"device": "cpu", "decode": "device", **options})


def test_other_places_are_refused(mixed):
    with pytest.raises(ValueError, match="decode must be one of 'auto', 'cpu', 'device'"):
        headrace.Loader(mixed, device="cpu", decode="gpu")


@pytest.fixture
def sound_gpu(monkeypatch):
    """A device that passes its self-test; what it was asked for is noted."""
    asked = []
    monkeypatch.setattr(kernels, "reason_not_compiled_for", lambda _device: None)
    monkeypatch.setattr(kernels, "reason_against_device", lambda *use: asked.append(use))
    monkeypatch.setattr(Transfer, "find_device", lambda _transfer: None)
    return asked


def test_auto_is_the_cpu_where_there_is_no_accelerator(mixed):
    for device in (None, "cpu"):
        with headrace.Loader(mixed, device=device) as loader:
            assert loader.decode_place == "cpu"


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, "device"),
        ({"transform": [RandomResizedCrop(8), Normalize(MEAN, STD)]}, "device"),
        ({"transform": [PerBatch(len)]}, "device"),
        ({"transform": [ColorJitter(0.1)]}, "cpu"),
        ({"transform": [RandomRotation(10)]}, "cpu"),
        ({"transform": [Mosaic(8)]}, "cpu"),
        ({"transform": [len]}, "cpu"),
        ({"collate_fn": list}, "cpu"),
        ({"decode": "cpu"}, "cpu"),
        ({"fields": ["label"]}, "cpu"),
    ],
)
@pytest.mark.usefixtures("sound_gpu")
def test_auto_is_the_device_where_it_can_do_all(mixed, options, place, monkeypatch):
    """Nothing is started before the first batch, so the loader can be made where there is no device."""
    monkeypatch.setattr(_device_choice, "_MIN_BYTES", 1)  # the images are small
    loader = headrace.Loader(mixed, device="cuda", **options)
    assert loader.decode_place == place


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("side", "transform", "place"),
    [
        (200, [], "device"),
        (100, [], "cpu"),
        (200, [RandomCrop(180)], "device"),
        (200, [RandomCrop(60)], "cpu"),
        (200, [Resize(30)], "device"),
    ],
)
@pytest.mark.usefixtures("sound_gpu")
def test_auto_is_the_cpu_where_little_is_decoded(tmp_path, side, transform, place):
    """What counts is what has to be decoded, not what comes out of it."""
    with headrace.Writer(tmp_path / "some.hr", fields={"image": "image"}, workers=1) as writer:
        for _ in range(3):
            writer.write({"image": np.zeros((side, side, 3), np.uint8)})
    assert headrace.Loader(tmp_path / "some.hr", device="cuda", transform=transform).decode_place == place


def test_a_dataset_without_hri_is_decoded_by_the_cpu(tmp_path):
    path = write(tmp_path / "png.hr", 2, formats=("png",))
    assert headrace.Loader(path, device="cuda", fields=["image"]).decode_place == "cpu"
    with pytest.raises(ValueError, match="no image or mask in the format hri"):
        headrace.Loader(path, device="cpu", decode="device", fields=["image"])


def test_of_several_renditions_the_device_takes_one_that_it_decodes(tmp_path):
    shares = [{"format": form, "share": share} for form, share in (("png", 0.7), ("hri:fast", 0.3))]
    plan = {"version": 1, "fields": {"image": {"renditions": 2, "shares": shares}}}
    path = write(tmp_path / "two.hr", 8, plan=plan)
    ds = headrace.open(path)
    assert {ds.read(row, "image")[1].format for row in range(8)} == {"png", "hri:fast"}
    stats = assert_epochs_agree(path, transform=[RandomCrop(12)], fields=["image", "label"])
    assert stats.images_on_device == 8


def test_figures_are_counted_by_format(mixed):
    on_cpu, on_device = loaders(mixed, transform=[CenterCrop(20)])
    with on_cpu, on_device:
        for loader in (on_cpu, on_device):
            list(loader)
        expected, found = on_cpu.stats(), on_device.stats()
    assert found.formats.keys() == expected.formats.keys()
    for form, figures in found.formats.items():
        assert figures.images == expected.formats[form].images
        assert figures.bytes_read == expected.formats[form].bytes_read
        assert figures.cpu_seconds > 0
    assert (found.images, found.bytes_read) == (expected.images, expected.bytes_read)


def test_storage_can_be_slowed_down(mixed, monkeypatch):
    """Every byte that is read for the device waits for its turn."""
    waited = []
    monkeypatch.setattr(Pace, "wait", lambda pace, n_bytes: waited.append((pace.rate, n_bytes)))
    options = {"batch_size": 12, "device": "cpu", "decode": "device", "fields": ["image"]}
    with headrace.Loader(mixed, **options) as loader:
        limit_storage(loader, 1e9)
        list(loader)
        figures = loader.stats().formats
    assert {rate for rate, _ in waited} == {1e9}
    assert sum(n for _, n in waited) == sum(figures[form].bytes_read for form in ("hri:fast", "hri:dense"))


def test_a_plan_says_what_the_device_decodes():
    """With "auto"; a field that it does not name, and `decode="device"`, are as without it."""
    shares = [
        {"format": "hri:fast", "share": 0.5, "decode": "device"},
        {"format": "hri:dense", "share": 0.3},
        {"format": "png", "share": 0.2, "decode": "device"},
    ]
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
    for decode, found in (("auto", {"hri:fast"}), ("device", {"hri:fast", "hri:dense"})):
        options = types.SimpleNamespace(decode=decode, plan=plan)
        assert device_formats(options, ["image", "mask"]) == {"image": found, "mask": {"hri:fast", "hri:dense"}}


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.usefixtures("sound_gpu")
def test_a_plan_can_leave_all_to_the_cpu(mixed):
    shares = [{"format": form, "share": 0.2} for form in FORMATS]
    for place in ("device", "cpu"):
        plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
        shares[0]["decode"] = place
        assert headrace.Loader(mixed, device="cuda", plan=plan, fields=["image"]).decode_place == place
