# SPDX-License-Identifier: Apache-2.0
"""Mosaic: four samples on a canvas, the same in every loader."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.loader.datasets import COUNT, assert_equal, copied, write
from tests.transforms.philox import Key, below, uniform, unit

import headrace
from headrace.errors import HeadraceError, TransformError
from headrace.transforms import (
    AugMix,
    CenterCrop,
    ColorJitter,
    GaussianNoise,
    HorizontalFlip,
    Mosaic,
    Normalize,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomPerspective,
    RandomResizedCrop,
    Resize,
    ScaleJitter,
    VerticalFlip,
    Views,
    compile,  # noqa: A004
)

TRAIN = [
    Mosaic(32),
    RandomAffine(10, (0.1, 0.1), (0.5, 1.5), interpolation="bilinear", fill=114),
    CenterCrop(32),
    HorizontalFlip(),
    Normalize(0.5, 0.5),
]


def drawn(key, size, n, *, p=1.0, center=(0.25, 0.75)):
    """Return the point and the partners' positions; None if there is no mosaic."""
    words = key.words(0)
    if not unit(words[0]) < p:
        return None
    y, x = (
        min(max(int(uniform(word, *center) * 2 * side), 1), 2 * side - 1)
        for word, side in zip(words[1:3], size, strict=True)
    )
    return (y, x), [below(word, n) for word in key.words(0, 1)[:3]]


def fitted(height, width, size):
    scale = min(size[0] / height, size[1] / width)
    return min(size[0], int(np.ceil(height * scale))), min(size[1], int(np.ceil(width * scale)))


def load(path, **options):
    options = {"batch_size": 8, "output": "numpy", "num_workers": 2, "ragged": "list", **options}
    return headrace.Loader(path, **options)


@pytest.mark.parametrize("p", [1.0, 0.5])
def test_the_canvas_has_the_tiles_where_the_document_says(path, p):
    """Images, masks and boxes, from the images of the samples and the draws of the document."""
    size = (30, 40)
    stored = headrace.open(path)
    with load(path, transform=[Mosaic(size, p, fill=7, mask_fill=9)], seed=5) as loader:
        batches = [copied(batch) for batch in loader]
    seen = set()
    for row in range(COUNT):
        batch, at = batches[row // 8], row % 8
        image, mask = np.full((60, 80, 3), 7, np.uint8), np.full((60, 80), 9, np.uint8)
        point, boxes, labels = drawn(Key(5, 0, row), size, COUNT, p=p), [], []
        seen.add(point is None)
        rows = [row] if point is None else [row, *point[1]]
        for tile, each in enumerate(rows):
            sample = stored[each]
            h, w = fitted(*sample["image"].shape[:2], size)
            if point is None:
                top, left = (60 - h) // 2, (80 - w) // 2
            else:
                (y, x), _ = point
                top, left = y - h if tile < 2 else y, x - w if tile % 2 == 0 else x
            rows_seen = slice(max(0, -top), min(h, 60 - top))
            columns_seen = slice(max(0, -left), min(w, 80 - left))
            place = (
                slice(top + rows_seen.start, top + rows_seen.stop),
                slice(left + columns_seen.start, left + columns_seen.stop),
            )
            resized = Resize((h, w))(sample["image"])
            image[place] = resized[rows_seen, columns_seen]
            nearest = Resize((h, w), interpolation="nearest")(sample["mask"])
            mask[place] = nearest[rows_seen, columns_seen]
            scale = np.array([w, h] * 2) / np.array([*sample["image"].shape[1::-1]] * 2)
            moved = np.clip(sample["boxes"].xyxy * scale + [left, top, left, top], 0, [80, 60, 80, 60])
            area = (moved[:, 2] - moved[:, 0]) * (moved[:, 3] - moved[:, 1])
            boxes.append(moved[area >= 1])
            labels += sample["boxes"].labels[area >= 1].tolist()
        assert np.array_equal(batch["image"][at], image.transpose(2, 0, 1)), row
        assert np.array_equal(batch["mask"][at], mask)
        assert np.allclose(batch["boxes"][at].xyxy, np.concatenate(boxes), atol=1e-3)
        assert batch["boxes"][at].labels.tolist() == labels
        assert batch["label"][at] == row
    assert seen == ({False} if p == 1 else {False, True})


def test_all_loaders_make_the_same_pixels(path):
    """Any number of threads, ranks, the dataset itself, and a resumed run."""
    with load(path, transform=TRAIN, seed=3, shuffle=True) as loader:
        expected = [copied(batch) for batch in loader]
        recipe = loader.recipe
    with load(path, transform=TRAIN, seed=3, shuffle=True, num_workers=0) as loader:
        for one, other in zip(expected, loader, strict=True):
            assert_equal(one, copied(other))
    by_label = {int(batch["label"][at]): (batch, at) for batch in expected for at in range(len(batch["label"]))}
    assert len(by_label) == COUNT
    for rank in range(2):
        with load(path, transform=TRAIN, seed=3, shuffle=True, rank=rank, world_size=2, batch_size=3) as loader:
            for batch in loader:
                for at, label in enumerate(batch["label"].tolist()):
                    other, there = by_label[label]
                    assert np.array_equal(batch["image"][at], other["image"][there])
                    assert np.array_equal(batch["boxes"][at].xyxy, other["boxes"][there].xyxy)
    with load(path, transform=TRAIN, seed=3, shuffle=True) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
    with load(path, transform=TRAIN, seed=3, shuffle=True) as loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        for one, other in zip(expected[2:], loader, strict=True):
            assert_equal(one, copied(other))
    dataset = headrace.open(path, transform=TRAIN, seed=3)
    for row in range(0, COUNT, 7):
        batch, at = by_label[row]
        sample = dataset[row]
        for field in ("image", "mask"):
            assert np.array_equal(sample[field], batch[field][at])
        assert np.array_equal(sample["boxes"].xyxy, batch["boxes"][at].xyxy)
        assert np.array_equal(sample["boxes"].labels, batch["boxes"][at].labels)
    assert headrace.transforms.Recipe.from_json(recipe).transforms == tuple(TRAIN)


def test_a_process_that_prepares_batches_makes_the_same_pixels(path):
    """The maker of an offload worker, from the recipe alone."""
    from headrace.loader import PixelMaker  # noqa: PLC0415 - of this room's processes only

    with load(path, transform=TRAIN, seed=3, fields=["image", "boxes"]) as loader:
        expected = copied(next(iter(loader)))
        recipe = headrace.transforms.Recipe.from_json(loader.recipe)
    maker = PixelMaker(headrace.open(path), recipe)
    batch = maker.source.submit(np.arange(8), 0)
    while not batch.wait(1.0):
        pass
    assert np.array_equal(batch.take()[0], expected["image"])
    maker.close()


@pytest.mark.parametrize(
    "rest",
    [
        TRAIN[1:],
        [RandomAffine(30, (0.4, 0.4), (0.3, 0.6)), ColorJitter(0.4)],
        [RandomPerspective(0.8, 1), RandomCrop(20), GaussianNoise(sigma=0.1)],
        [CenterCrop((20, 30)), HorizontalFlip(), Pad(3)],
        [RandomResizedCrop((17, 19)), VerticalFlip()],
        [Pad(5, padding_mode="reflect"), Resize(31, interpolation="nearest")],
        [RandomCrop(9), AugMix()],
        [CenterCrop(100), Normalize(0.5, 0.2)],
    ],
)
def test_what_follows_works_on_the_entire_canvas(path, rest):
    """However little of it is decoded: the pixels are those of the transforms on the canvas as an image."""
    with load(path, transform=[Mosaic(32, 0.8)], seed=9, layout="HWC") as loader:
        canvases = [copied(batch) for batch in loader]
    compiled = compile([Mosaic(32, 0.8), *rest], layout="HWC")
    with load(path, transform=[Mosaic(32, 0.8), *rest], seed=9, layout="HWC") as loader:
        for canvas, batch in zip(canvases, loader, strict=True):
            for at, label in enumerate(canvas["label"].tolist()):
                key = Key(9, 0, label).arguments()
                assert np.array_equal(batch["image"][at], compiled.image.apply(canvas["image"][at], **key))
                assert np.array_equal(batch["mask"][at], compiled.mask.apply(canvas["mask"][at], **key))


def test_a_stock_data_loader_makes_the_same_samples(path):
    """With worker processes, in the epochs that it counts by itself."""
    data = pytest.importorskip("torch.utils.data")
    stock = data.DataLoader(headrace.open(path, transform=TRAIN, seed=3), batch_size=8, collate_fn=list, num_workers=2)
    with load(path, transform=TRAIN, seed=3) as loader:
        for _ in range(2):
            for samples, batch in zip(stock, loader, strict=True):
                for at, sample in enumerate(samples):
                    assert np.array_equal(sample["image"], batch["image"][at])
                    assert np.array_equal(sample["boxes"].xyxy, batch["boxes"][at].xyxy)


@pytest.mark.parametrize("seed", range(25))
def test_boxes_are_where_their_pixels_are(tmp_path, seed):
    """After a mosaic and warps: transform-then-outline is outline-then-transform, within a pixel per resampling."""
    rng = np.random.default_rng(seed)
    types = {"image": "image", "mask": "mask", "boxes": "boxes", "number": "list<int64> of boxes"}
    with headrace.Writer(tmp_path / "a.hr", fields=types) as writer:
        for number in range(6):
            height, width = rng.integers(30, 80, 2).tolist()
            mask = np.zeros((height, width), np.uint8)
            (y, x), (h, w) = rng.integers(0, 15, 2).tolist(), rng.integers(8, 15, 2).tolist()
            mask[y : y + h, x : x + w] = 10 + number
            boxes = np.array([[x, y, x + w, y + h]], np.float32), np.array([number])
            image = np.zeros((height, width, 3), np.uint8)
            writer.write({"image": image, "mask": mask, "boxes": boxes, "number": np.array([number])})
    transform = [Mosaic(64), RandomAffine(0, (0.1, 0.1), (0.8, 1.4)), CenterCrop(90), HorizontalFlip()]
    with load(tmp_path / "a.hr", transform=transform, batch_size=6, seed=seed, min_area=0) as loader:
        batch = next(iter(loader))
    for mask, boxes, numbers in zip(batch["mask"], batch["boxes"], batch["number"], strict=True):
        assert list(numbers) == boxes.labels.tolist()
        shown = np.zeros(mask.shape, bool)
        for (x0, y0, x1, y1), label in zip(boxes.xyxy, boxes.labels, strict=True):
            place = slice(max(0, round(y0) - 1), round(y1) + 1), slice(max(0, round(x0) - 1), round(x1) + 1)
            inside = mask[place] == 10 + label
            shown[place] |= inside
            if x1 - x0 > 2 and y1 - y0 > 2:
                assert inside.any(axis=0).sum() >= x1 - x0 - 3
                assert inside.any(axis=1).sum() >= y1 - y0 - 3
        assert not (mask[~shown] > 0).any()


def test_partners_come_from_the_selection(path):
    """A loader of some samples shows no others."""
    chosen = [3, 8, 21, 30]
    with load(path, transform=[Mosaic(16)], indices=chosen, seed=1, batch_size=4) as loader:
        batch = copied(next(iter(loader)))
    dataset = headrace.open(path, transform=[Mosaic(16)], seed=1).select(chosen)
    for at in range(4):
        assert np.array_equal(dataset[at]["image"], batch["image"][at])
    single = headrace.open(path, transform=[Mosaic(16)], seed=1).select([chosen[0]])[0]["image"]
    alone = [single[:, y, x] for y in (0, -1) for x in (0, -1)]
    assert len(alone) == 4  # four times the same image


def test_each_epoch_has_other_mosaics(path):
    with load(path, transform=[Mosaic(16)], fields=["image"]) as loader:
        first, second = (copied(next(iter(loader)))["image"] for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_partner_that_cannot_be_read(tmp_path):
    """Raised with its name, and skipped or replaced as asked."""
    broken = write(tmp_path / "broken.hr", formats=("hri:fast",))
    place = headrace.open(broken).rendition(5, "image")
    shard = broken / "shards" / f"{place.shard_number:06d}.hrs"
    content = bytearray(shard.read_bytes())
    content[place.offset + place.n_bytes // 2] ^= 0xFF
    shard.write_bytes(bytes(content))

    with (
        load(broken, transform=TRAIN, num_workers=1) as loader,
        pytest.raises(headrace.errors.CorruptImage, match="row 5"),
    ):
        list(loader)
    needs = {row for row in range(COUNT) if 5 in (row, *drawn(Key(0, 0, row), (32, 32), COUNT)[1])}
    assert len(needs) > 1
    with load(broken, transform=TRAIN, on_error="skip") as loader:
        labels = [label for batch in loader for label in batch["label"].tolist()]
        assert loader.stats().error_count == len(needs)
    assert set(labels) == set(range(COUNT)) - needs
    with load(broken, transform=TRAIN, on_error="replace") as loader:
        assert sum(len(batch["label"]) for batch in loader) == COUNT


def test_images_that_do_not_fit_together(tmp_path):
    """One dtype and number of channels per canvas."""
    rng = np.random.default_rng(0)
    with headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}) as writer:
        for number in range(8):
            shape = (9, 9) if number % 2 else (9, 9, 5)
            writer.write({"image": rng.integers(0, 256, shape, np.uint8)})
    message = "one dtype and the same number of channels"
    with (
        load(tmp_path / "a.hr", transform=[Mosaic(8)], color="keep") as loader,
        pytest.raises(TransformError, match=message),
    ):
        list(loader)
    with pytest.raises(TransformError, match="same number of channels"):
        list(headrace.open(tmp_path / "a.hr", transform=[Mosaic(8)], color="keep"))


def test_a_canvas_that_cannot_be_transformed_is_an_error_of_its_sample(path):
    """With its name, and skipped as asked."""
    transform = [Mosaic(16), ScaleJitter(32, (0.5, 1.5)), RandomCrop(32)]
    with load(path, transform=transform) as loader, pytest.raises(HeadraceError, match=r"row \d+.*crop"):
        list(loader)
    with load(path, transform=transform, on_error="skip", fields=["image", "label"]) as loader:
        n = sum(len(batch["image"]) for batch in loader)
        assert 0 < n == COUNT - loader.stats().error_count < COUNT


def test_mosaics_of_one_image_field_and_no_boxes(path):
    """All shapes alike, and all different."""
    with load(path, transform=[Mosaic(16), ScaleJitter(32, (0.5, 1.5))], fields=["image"]) as loader:
        shapes = {image.shape for batch in loader for image in batch["image"]}
        assert len(shapes) > 3
        assert loader.stats().busy_seconds.transform > 0


def test_where_a_mosaic_can_be():
    for wrong in ([Resize(8), Mosaic(8)], [Mosaic(8), Mosaic(8)]):
        with pytest.raises(ValueError, match="first transform"):
            compile(wrong)
    with pytest.raises(ValueError, match="several views"):
        Views(2, [Mosaic(8)])
    with pytest.raises(TypeError, match="further samples"):
        Mosaic(8)(np.zeros((8, 8, 3), np.uint8))
    for arguments in ({"size": 0}, {"size": 40000}, {"p": 2}, {"center_range": (0.5, 0.2)}, {"fill": 70000}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Mosaic(**arguments)
