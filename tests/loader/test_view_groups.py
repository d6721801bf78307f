# SPDX-License-Identifier: Apache-2.0
"""Several views of a sample: groups of their own size and transforms, from one read and one decode per image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.loader.datasets import COUNT, assert_equal, copied

import headrace
from headrace import _core
from headrace.errors import LoaderError
from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    MultiCrop,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    View,
    Views,
    compile,  # noqa: A004
)

DINO = [
    MultiCrop(
        [
            View(2, [RandomResizedCrop(24, (0.4, 1.0)), HorizontalFlip(), Normalize(0.5, 0.25), RandomErasing(0.5)]),
            View(5, [RandomResizedCrop(9, (0.05, 0.4)), HorizontalFlip(), Normalize(0.4, 0.3)]),
            View(1, [CenterCrop(12)]),
        ]
    )
]
FIELDS = ["image", "mask", "label", "boxes"]
OPTIONS = {"batch_size": 4, "transform": DINO, "fields": FIELDS, "output": "numpy", "shuffle": True, "seed": 8}


def epoch(path: Path, **options):
    with headrace.Loader(path, **{**OPTIONS, **options}) as loader:
        return [copied(batch) for batch in loader]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_groups_are_those_of_the_dataset(path, threads):
    """Every format, images and masks and boxes; any number of threads."""
    dataset = headrace.open(path, transform=DINO, seed=8)

    batches = epoch(path, num_workers=threads)

    shapes = [group.shape for group in batches[0]["image"]]
    assert shapes == [(4, 2, 3, 24, 24), (4, 5, 3, 9, 9), (4, 1, 3, 12, 12)]
    assert [group.dtype.name for group in batches[0]["image"]] == ["float32", "float32", "uint8"]
    assert [group.shape for group in batches[0]["mask"]] == [(4, 2, 24, 24), (4, 5, 9, 9), (4, 1, 12, 12)]
    for batch in batches:
        for at, label in enumerate(batch["label"]):
            sample = dataset[int(label)]
            for field in ("image", "mask"):
                assert isinstance(batch[field], list)
                assert_equal(tuple(group[at] for group in batch[field]), sample[field])
            assert_equal([*batch["boxes"][at]], [*sample["boxes"]])


def test_views_are_those_of_the_core_one_by_one(path):
    """What is decoded together has the pixels of what is decoded alone."""
    compiled, batches = compile(DINO), epoch(path, shuffle=False)
    dataset = headrace.open(path)
    for row in range(COUNT):
        data, rendition = dataset.read(row, "image")
        del data
        image = dataset[row]["image"]
        assert image.shape[:2] == (rendition.height, rendition.width)
        view = 0
        for number, group in enumerate(compiled.groups):
            for at in range(group.n):
                alone = group.image.apply(image, seed=8, epoch=0, sample=row, view=view)
                assert np.array_equal(batches[row // 4]["image"][number][row % 4, at], alone)
                view += 1


def test_a_resumed_run_and_a_stock_loader_agree(path):
    """From the middle of the epoch, with another batch size; and through PyTorch's collate."""
    data = pytest.importorskip("torch.utils.data")
    plain = epoch(path)
    with headrace.Loader(path, **OPTIONS) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    with headrace.Loader(path, **{**OPTIONS, "batch_size": 2}) as loader:
        loader.load_state_dict(state)
        rest = [copied(batch) for batch in loader]
    for number, batch in enumerate(rest):
        for group, whole in zip(batch["image"], plain[3 + number // 2]["image"], strict=True):
            assert np.array_equal(group, whole[number % 2 * 2 : number % 2 * 2 + 2])

    dataset = headrace.open(path, transform=DINO, seed=8)
    rows = [int(label) for batch in plain for label in batch["label"]]
    stock = data.DataLoader(
        [{"image": dataset[row]["image"]} for row in rows[:8]], batch_size=4
    )  # boxes need a collate function of their own
    for batch, whole in zip(stock, plain, strict=False):
        assert [group.shape for group in batch["image"]] == [group.shape for group in whole["image"]]
        for group, own in zip(batch["image"], whole["image"], strict=True):
            assert np.array_equal(group.numpy(), own)


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_functions_get_the_groups_of_a_sample(path, output):
    if output == "torch":
        pytest.importorskip("torch")
    seen = []

    def look(sample):
        seen.append([tuple(group.shape) for group in sample["image"]])
        return sample

    batches = epoch(path, transform=[*DINO, look], output=output, fields=["image"])

    assert set(map(tuple, seen)) == {((2, 3, 24, 24), (5, 3, 9, 9), (1, 3, 12, 12))}
    assert [tuple(group.shape) for group in batches[0]["image"]] == [(4, *shape) for shape in seen[0]]
    assert_equal([np.asarray(group) for group in batches[0]["image"]], epoch(path)[0]["image"])


def test_groups_of_differing_shapes_stay_lists(path):
    transform = [MultiCrop([View(2, [Resize(9)]), View(1, [RandomCrop(5)])])]

    batch = epoch(path, transform=transform)[0]

    assert isinstance(batch["image"][0], list)
    assert batch["image"][0][0].shape[:2] == (2, 3)
    assert batch["image"][1].shape == (4, 1, 3, 5, 5)
    with pytest.raises(LoaderError, match="must have one shape"):
        epoch(path, transform=transform, ragged="pad")


def jpegs(folder: Path, **save) -> Path:
    rng = np.random.default_rng(2)
    (folder / "in").mkdir()
    for number in range(6):
        coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
        coarse.resize((150 + number, 97)).save(folder / "in" / f"{number}.jpg", **save)
    headrace.build(folder / "in", folder / "photos.hr", format="keep")
    return folder / "photos.hr"


@pytest.mark.parametrize("save", [{}, {"subsampling": 0}, {"progressive": True, "quality": 40}], ids=str)
@pytest.mark.parametrize("approximate", [False, True])
def test_jpegs_give_each_view_the_pixels_that_it_has_alone(tmp_path, save, approximate):
    """The part that all views need has the pixels of the parts, and approximate decoding chooses for each view."""
    if 4 not in _core.core_formats():
        pytest.skip("the core was built without libjpeg-turbo")
    path = jpegs(tmp_path, **save)
    inner = [RandomResizedCrop((20, 21), (0.1, 0.9)), HorizontalFlip()]
    options = {"batch_size": 6, "output": "numpy", "approximate_jpeg": approximate}
    with headrace.Loader(path, transform=[Views(5, inner)], **options) as loader:
        batch = next(iter(loader))["image"]
    alone = compile(inner, approximate_jpeg=approximate)
    dataset = headrace.open(path)
    for row in range(6):
        data, _ = dataset.read(row, "image")
        for view in range(5):
            made = alone.image.run(data, 4, seed=0, epoch=0, sample=row, view=view)
            assert np.array_equal(batch[row, view], made)


def test_a_view_at_full_size_follows_a_reduced_one(tmp_path):
    """A view that needs an eighth of a JPEG does not leave it reduced for the next view of the same image."""
    if 4 not in _core.core_formats():
        pytest.skip("the core was built without libjpeg-turbo")
    path = jpegs(tmp_path)
    groups = [[Resize((9, 9))], [CenterCrop(12)], [CenterCrop((97, 150))]]
    transform = MultiCrop([View(1, inner) for inner in groups])

    with headrace.Loader(path, transform=[transform], output="numpy", approximate_jpeg=True) as loader:
        views = next(iter(loader))["image"]

    data, _ = headrace.open(path).read(0, "image")
    for view, inner in zip(views, groups, strict=True):
        alone = compile(inner, approximate_jpeg=True).image.run(data, 4, seed=0, epoch=0, sample=0)
        assert np.array_equal(view[0, 0], alone)


def test_each_image_is_read_once(path):
    """However many views there are."""
    read = []
    for transform in (None, DINO, [Views(6, [RandomResizedCrop(8)])]):
        with headrace.Loader(path, batch_size=8, transform=transform, fields=["image"], output="numpy") as loader:
            for _ in loader:
                pass
            stats = loader.stats()
            assert stats.images == COUNT
            read.append(stats.bytes_read)
    assert max(read) <= read[0]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_failed_samples_leave_all_groups_alike(path, on_error):
    """A crop that does not fit fails the sample in every group."""
    transform = [MultiCrop([View(2, [RandomResizedCrop(8)]), View(1, [RandomCrop(40)])])]

    batches = epoch(path, transform=transform, on_error=on_error, fields=["image", "label"])

    sizes = [len(batch["label"]) for batch in batches]
    assert [[len(group) for group in batch["image"]] for batch in batches] == [[n, n] for n in sizes]
    assert (sum(sizes) == COUNT) == (on_error == "replace")
    dataset = headrace.open(path, transform=transform, seed=8)
    for batch in batches[:4]:
        for at, label in enumerate(batch["label"]):
            assert_equal(tuple(group[at] for group in batch["image"]), dataset[int(label)]["image"])


def test_a_device_leaves_them_to_the_cpu(core_path):
    torch = pytest.importorskip("torch")
    del torch
    for transform, name in (
        (DINO, "MultiCrop"),
        ([RandomResizedCrop(8), RandomErasing()], "RandomErasing"),
        ([RandomResizedCrop(8), Normalize(0.5, 0.5), headrace.transforms.MixUp(num_classes=COUNT)], "MixUp"),
    ):
        options = {"transform": transform, "fields": ["image", "label"], "device": "cpu", "batch_size": 4}
        with pytest.raises(ValueError, match=f"does not support {name}"):
            headrace.Loader(core_path, decode="device", **options)
        with headrace.Loader(core_path, **options) as loader:
            assert loader.decode_place == "cpu"
            assert len(next(iter(loader))["image"])
