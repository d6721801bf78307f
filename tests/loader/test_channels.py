# SPDX-License-Identifier: Apache-2.0
"""Which images become RGB: gray, RGB, RGBA and CMYK do, others keep their bands unless they are asked not to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace
from headrace import formats
from headrace.errors import HeadraceError
from headrace.transforms import CenterCrop, Normalize, RandomCrop

FORMATS = ("hri:fast", "hri:dense", "raw", "png", "webp")
CROP = [CenterCrop(16)]


def pixels(channels: int, dtype: str = "uint8") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(channels)
    shape = (20, 24) if channels == 1 else (20, 24, channels)
    return rng.integers(0, 256, shape).astype(dtype)


def png(channels: int, dtype: str = "uint8") -> bytes:
    return formats.get("png").encode(pixels(channels, dtype))


def saved(image: Image.Image, form: str) -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def build(path: Path, *images: Any, form: str = "hri:fast") -> Path:
    samples = ({"image": image, "label": number} for number, image in enumerate(images))
    headrace.build(samples, path, format=form, workers=1)
    return path


def loaded(path: Path, **options: Any) -> list[np.ndarray[Any, Any]]:
    """The images as a loader gives them, which has to agree with the dataset itself and with a device."""
    options = {"transform": CROP, "batch_size": 2, "num_workers": 1, **options}
    with headrace.Loader(path, output="numpy", **options) as loader:
        found = [image for batch in loader for image in batch["image"]]
    color = options.get("color", "auto")
    single = headrace.open(path, transform=options["transform"], color=color)
    for number, image in enumerate(found):
        np.testing.assert_array_equal(single[number]["image"], image)
        plain = headrace.open(path, color=color)[number]["image"]
        plain = plain[..., None] if plain.ndim == 2 else plain
        assert color == "keep" or plain.shape[2] == image.shape[0]
    pytest.importorskip("torch")
    if any(form.startswith("hri") for form in headrace.open(path).formats["image"]):
        with headrace.Loader(path, device="cpu", decode="device", **options) as loader:
            others = [image for batch in loader for image in batch["image"]]
        for one, other in zip(found, others, strict=True):
            np.testing.assert_array_equal(one, other.numpy())
    return found


def channels(path: Path, **options: Any) -> list[int]:
    return [image.shape[0] for image in loaded(path, **options)]


@pytest.mark.parametrize("form", ["hri:fast", "hri:dense", "raw"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
def test_bands_are_kept(tmp_path: Path, form: str, dtype: str) -> None:
    """Two, four or more channels of an array are bands: nothing says that the last one is alpha."""
    path = build(tmp_path / "bands.hr", *(pixels(n, dtype) for n in (1, 2, 3, 4, 5, 13)), form=form)

    assert channels(path) == [3, 2, 3, 4, 5, 13]
    for count, image in zip((2, 4, 5), np.array(loaded(path), object)[[1, 3, 4]], strict=True):
        np.testing.assert_array_equal(image, pixels(count, dtype)[2:18, 4:20].transpose(2, 0, 1))


def test_bands_become_rgb_if_asked(tmp_path: Path) -> None:
    path = build(tmp_path / "bands.hr", pixels(2), pixels(4))

    assert channels(path, color="RGB") == [3, 3]
    np.testing.assert_array_equal(loaded(path, color="RGB")[1], pixels(4)[2:18, 4:20, :3].transpose(2, 0, 1))
    assert channels(path, color="keep") == [2, 4]


def test_more_than_four_bands_have_no_rgb(tmp_path: Path) -> None:
    path = build(tmp_path / "bands.hr", pixels(5))

    with pytest.raises(HeadraceError, match="four channels"):
        loaded(path, color="RGB")


@pytest.mark.parametrize("form", FORMATS)
def test_alpha_is_left_out(tmp_path: Path, form: str) -> None:
    """Whatever they are stored as: the index records that their last channel is alpha."""
    path = build(tmp_path / "alpha.hr", png(4), png(3), png(1), form=form)

    assert channels(path) == [3, 3, 3]
    np.testing.assert_array_equal(loaded(path)[0], pixels(4)[2:18, 4:20, :3].transpose(2, 0, 1))
    assert channels(path, color="keep") == [4, 3, 1]


@pytest.mark.parametrize("form", ["hri:fast", "raw", "png"])
@pytest.mark.parametrize(("count", "dtype"), [(2, "uint8"), (2, "uint16"), (4, "uint16")])
def test_gray_with_alpha_and_16_bits_too(tmp_path: Path, form: str, count: int, dtype: str) -> None:
    path = build(tmp_path / "alpha.hr", png(count, dtype), form=form)

    assert channels(path) == [3]


def test_other_sources_say_it_too(tmp_path: Path) -> None:
    """Pillow's images by their mode, TIFF by its tags; an .hri file that was built from them by its metadata."""
    rgba = Image.fromarray(pixels(4), "RGBA")
    path = build(tmp_path / "a.hr", rgba, saved(rgba, "TIFF"), saved(rgba.convert("LA"), "PNG"), pixels(4))

    assert channels(path) == [3, 3, 3, 4]
    headrace.build(path, tmp_path / "again.hr", format="hri:dense", workers=1)
    assert channels(tmp_path / "again.hr") == [3, 3, 3, 4]


@pytest.mark.parametrize("form", ["keep", "hri:fast"])
def test_cmyk_becomes_rgb(tmp_path: Path, form: str) -> None:
    path = build(tmp_path / "cmyk.hr", saved(Image.fromarray(pixels(4), "CMYK"), "JPEG"), form=form)

    assert channels(path) == [3]
    assert channels(path, color="RGB") == [3]
    assert channels(path, color="keep") == [4]


def test_a_mixed_plan_gives_the_same_channels(tmp_path: Path) -> None:
    shares = [{"format": name, "share": 0.5} for name in ("hri:fast", "png")]
    plan = {"version": 1, "fields": {"image": {"renditions": 2, "shares": shares}}}
    with headrace.Writer(tmp_path / "two.hr", fields={"image": "image", "label": "int64"}, plan=plan) as out:
        for number in range(6):
            out.write({"image": Image.fromarray(pixels(4), "RGBA"), "label": number})

    assert channels(tmp_path / "two.hr", transform=[RandomCrop(9)]) == [3] * 6


def test_normalising_three_channels_of_four_bands_is_an_error(tmp_path: Path) -> None:
    path = build(tmp_path / "bands.hr", pixels(4))

    with pytest.raises(HeadraceError, match="Normalize must have one mean"):
        loaded(path, transform=[*CROP, Normalize((0.5,) * 3, (0.5,) * 3)])
    assert channels(path, transform=[*CROP, Normalize((0.5,) * 4, (0.5,) * 4)]) == [4]
