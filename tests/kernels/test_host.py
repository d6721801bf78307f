# SPDX-License-Identifier: Apache-2.0
"""What the core does of a batch for a device equals plain NumPy, on sound files and on hostile ones, within bounds."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
from tests.adversarial.specimens import SPECIMENS
from tests.adversarial.test_mutations import mutations
from tests.codec.pictures import Recipe
from tests.kernels import host_reference as plain

import headrace
from headrace import _core, transforms
from headrace.errors import (
    CorruptDataset,
    CorruptImage,
    HeadraceError,
    ImageTooLarge,
    InvalidRegion,
)
from headrace.kernels import ResizeWindow
from headrace.kernels._describe import InMemory, describe
from headrace.kernels.tables import ImageField, TileField, TileKind

CANARY = 0xA5
PICTURES = [
    (Recipe(70, 300, 3), "fast"),
    (Recipe(33, 65, 1, "uint16", "noise"), "dense"),
    (Recipe(64, 40, 4, content="3 colours"), "fast"),
    (Recipe(130, 131, 2, "int16"), "dense"),
    (Recipe(1, 1, 64), "fast"),
    (Recipe(40, 500, 3, content="flat"), "dense"),
]


@pytest.fixture(scope="module")
def files():
    own = [headrace.encode(recipe.render(), mode=mode) for recipe, mode in PICTURES]
    return [*own, *SPECIMENS.values()]


def some_region(rng, data):
    head = headrace.inspect(data)
    top, left = int(rng.integers(head.height)), int(rng.integers(head.width))
    return top, left, int(rng.integers(1, head.height - top + 1)), int(rng.integers(1, head.width - left + 1))


def outcome(run):
    """What comes out of a call, or all that its error says."""
    try:
        return run()
    except HeadraceError as error:
        return type(error), str(error), {name: getattr(error, name, None) for name in ("index", "tile", "offset")}


def fetched(fetch, tiles, payload_bytes):
    """Tables and payload after a fetch that may write nothing else."""
    memory = np.full(payload_bytes + 64, CANARY, np.uint8)
    fetch(tiles, memory[32 : 32 + payload_bytes])
    assert (memory[:32] == CANARY).all()
    assert (memory[32 + payload_bytes :] == CANARY).all()
    return tiles.tolist(), memory.tobytes()


def test_tables_have_the_rows_that_kernels_know():
    assert _core.TILE_ROWS.split() == [row.name for row in TileField]
    assert _core.IMAGE_ROWS.split() == [row.name for row in ImageField]


@pytest.mark.parametrize("seed", range(8))
def test_tables_payload_and_scratch_are_those_of_plain_numpy(files, seed):
    rng = np.random.default_rng(seed)
    datas = [files[at] for at in rng.permutation(len(files))]
    regions = [some_region(rng, data) if rng.random() < 0.8 else None for data in datas]
    tiles, images, ranks, payload_bytes = plain.describe(datas, regions, 2**30)
    found = describe(InMemory(datas), regions, 2**30)
    assert found.payload_bytes == payload_bytes
    assert np.array_equal(found.tiles, tiles)
    assert np.array_equal(found.images, images)
    assert np.array_equal(found.ranks, ranks)

    expected = fetched(partial(plain.fetch, datas), tiles, payload_bytes)
    assert fetched(InMemory(datas).fetch, found.tiles, payload_bytes) == expected
    sizes, lists = _core.lay_out_scratch(found.tiles)
    assert sizes == plain.lay_out_scratch(tiles)
    assert np.array_equal(found.tiles, tiles)
    for kind, (own, chains) in zip((TileKind.PALETTE, TileKind.PACKED, TileKind.CODED), lists, strict=True):
        expected_tiles, expected_chains = plain.chains_of(tiles, kind)
        assert np.array_equal(own, expected_tiles)
        assert np.array_equal(chains, expected_chains)


def hostile(rng, data):
    """Cut short, longer than it says, or with other bytes anywhere; sums are as they come."""
    changed = bytearray(data)
    match rng.integers(4):
        case 0:
            del changed[int(rng.integers(len(changed))) :]
        case 1:
            changed += rng.bytes(int(rng.integers(1, 9)))
        case 2:
            changed[int(rng.integers(min(len(changed), 40)))] ^= 1 << int(rng.integers(8))
        case _:
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)


def by_numpy(datas, regions, most):
    tiles, _, _, n_bytes = plain.describe(datas, regions, most)
    return fetched(partial(plain.fetch, datas), tiles, n_bytes)


def by_the_core(datas, regions, most):
    found = describe(InMemory(datas), regions, most)
    return fetched(InMemory(datas).fetch, found.tiles, found.payload_bytes)


@pytest.mark.parametrize("seed", range(6))
def test_hostile_files_and_regions_have_the_error_of_plain_numpy(files, seed):
    rng = np.random.default_rng(seed)
    verdicts = set()
    for _ in range(300):
        datas = [files[at] for at in rng.permutation(len(files))[:4]]
        regions = [some_region(rng, data) for data in datas]
        at = int(rng.integers(4))
        match rng.integers(3):
            case 0:
                regions[at] = tuple(int(side) for side in rng.choice([-(2**40), -1, 0, 1, 30, 2**31, 2**40], 4))
            case 1:
                datas[at] = hostile(rng, datas[at])
            case _:
                datas[at] = next(mutations(datas[at], int(rng.integers(2**31)), 1))
        batch = datas, regions, int(rng.choice([2**30, 1000]))
        expected = outcome(partial(by_numpy, *batch))
        assert outcome(partial(by_the_core, *batch)) == expected
        verdicts.add(expected[0] if isinstance(expected[0], type) else "sound")
    assert verdicts >= {CorruptImage, InvalidRegion, ImageTooLarge, "sound"}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at_hand", [0, 700, 10**6])
def test_tiles_are_fetched_from_files_as_from_memory(tmp_path, threads, at_hand):
    """Over gaps that are read along and over such that are not, with more or less of each file at hand."""
    datas = [
        headrace.encode(Recipe(*size, content="noise").render()) for size in ((600, 700, 3), (90, 2000, 4), (40, 40, 1))
    ]
    with (tmp_path / "shard").open("wb") as file:
        file.write(bytes(17))
        file.writelines(datas)
    regions = [(100, 300, 300, 20), (0, 700, 70, 900), None]
    expected = describe(InMemory(datas), regions, 2**30)
    wanted = fetched(InMemory(datas).fetch, expected.tiles, expected.payload_bytes)
    heads = [data[: max(at_hand, head_bytes(data))] for data in datas]
    sizes = np.array([len(data) for data in datas], np.int64)
    offsets = 17 + np.cumsum(sizes) - sizes
    with (tmp_path / "shard").open("rb") as file:
        numbers = np.full(3, file.fileno(), np.int64)
        read = []

        def fetch(tiles, payload):
            read.append(_core.fetch_tiles(heads, sizes, numbers, offsets, tiles, payload, threads)[0])

        found = describe(InMemory(datas), regions, 2**30)
        assert fetched(fetch, found.tiles, found.payload_bytes) == wanted
        assert (read[0] < sizes).all()
        assert (read[0] > 0).any() == (at_hand < 10**6)

        os.truncate(file.name, offsets[1] + sizes[1] - 1)
        damaged = describe(InMemory(datas), [regions[0], None, (0, 0, 1, 1)], 2**30)
        if at_hand < 10**6:
            with pytest.raises(CorruptDataset) as caught:
                fetched(fetch, damaged.tiles, damaged.payload_bytes)
            assert caught.value.index == 1


def head_bytes(data):
    """All that comes before the first tile."""
    tiles, *_ = plain.describe([data], [None], 2**30)
    return int(tiles[TileField.SOURCE, 0])


@pytest.mark.parametrize("seed", range(4))
def test_a_table_that_lies_moves_nothing_out_of_bounds(files, seed):
    """Whatever a table says, bytes come from its images and go to the payload, or it is refused."""
    rng = np.random.default_rng(seed)
    datas = files[:4]
    sound = describe(InMemory(datas), None, 2**30)
    numbers = [-(2**63), -(2**40), -1, 0, 1, 5, 2**20, 2**32, 2**40, 2**63 - 1]
    verdicts = set()
    for _ in range(300):
        tiles = sound.tiles.copy()
        for _ in range(int(rng.integers(1, 3))):
            row = rng.choice(
                [
                    TileField.AT,
                    TileField.LENGTH,
                    TileField.IMAGE,
                    TileField.SOURCE,
                    TileField.HEIGHT,
                    TileField.WIDTH,
                    TileField.CHANNELS,
                ]
            )
            tiles[row, rng.integers(tiles.shape[1])] = rng.choice(numbers)
        try:
            fetched(InMemory(datas).fetch, tiles, sound.payload_bytes)
            _core.lay_out_scratch(tiles)
            verdicts.add("passed")
        except (ValueError, CorruptImage) as error:
            verdicts.add(type(error))
    assert {ValueError, CorruptImage} <= verdicts


def test_lengths_of_arguments_have_to_agree(files):
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    tiles = np.zeros((len(TileField), 1), np.int64)
    with pytest.raises(ValueError, match="one entry per image"):
        _core.describe_tiles(files[:1], two, np.zeros((1, 4), np.int64), 1)
    with pytest.raises(ValueError, match="one entry per image"):
        _core.fetch_tiles(files[:1], one, one, two, tiles, np.zeros(9, np.uint8), 1)
    with pytest.raises(ValueError, match="must fit"):
        _core.read_pieces(one, one, one + 9, one, np.zeros(8, np.uint8), 1)
    with pytest.raises(TypeError, match="contiguous"):
        _core.read_pieces(one, one, one, one, np.zeros(8, np.uint8)[::2], 1)
    with pytest.raises(TypeError):  # what is filled in would be lost in a copy
        _core.lay_out_scratch(np.ones((2, len(TileField)), np.int64).T)


@pytest.mark.parametrize("seed", range(4))
def test_taps_are_those_of_plain_numpy(seed):
    rng = np.random.default_rng(seed)
    axes = []
    for _ in range(100):
        size, resized = (int(side) for side in rng.integers(1, rng.choice([5, 400, 5000]), 2))
        begin = int(rng.integers(resized))
        axes.append((size, resized, begin, int(rng.integers(1, resized - begin + 1)), int(rng.integers(size))))
    whole, real, ranges = _core.resize_taps(np.array(axes, np.int64))
    expected = [plain.taps(*axis) for axis in axes]
    for found, columns in zip((*whole, *real), zip(*(made for made, _ in expected), strict=True), strict=True):
        assert np.array_equal(found, np.concatenate(columns).astype(found.dtype))
    assert ranges.tolist() == [list(own) for _, own in expected]
    for (size, resized, begin, count, _), (_, (first, end)) in zip(axes, expected, strict=True):
        job = ResizeWindow((size, size), (resized, resized), (begin, begin), (count, count))
        assert job.needed_region() == (first, first, end - first, end - first)


@pytest.mark.parametrize(
    "axis", [(0, 1, 0, 1, 0), (1, 0, 0, 1, 0), (5, 5, 3, 3, 0), (5, 5, -1, 1, 0), (1 << 24, 1, 0, 1, 0)]
)
def test_an_axis_that_cannot_be_is_refused(axis):
    with pytest.raises(ValueError, match="axis"):
        _core.resize_taps(np.array([axis], np.int64))


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    "steps",
    [
        [transforms.RandomCrop(20), transforms.HorizontalFlip()],
        [transforms.RandomResizedCrop(16), transforms.HorizontalFlip(), transforms.VerticalFlip()],
        [transforms.Resize(24), transforms.CenterCrop(20)],
        [transforms.Resize(24, interpolation="nearest")],
        [transforms.CenterCrop(300)],
        [],
    ],
    ids=["crop", "resized crop", "resize", "nearest", "beyond", "nothing"],
)
def test_views_are_those_of_the_passes(mask, steps):
    rng = np.random.default_rng(5)
    compiled = transforms.compile(steps)
    transform = compiled.mask if mask else compiled.image
    sizes = rng.integers(1, 120, (40, 2))
    rows = rng.integers(0, 10**6, 40)
    table = _core.plan_views(transform, sizes, rows, 2, 7, 3).T.tolist()
    for at, ((height, width), row) in enumerate(zip(sizes.tolist(), rows.tolist(), strict=True)):
        for number in range(2):
            expected = plain.view(transform, height, width, mask=mask, seed=7, epoch=3, sample=row, view=number)
            found = table[2 * at + number]
            assert found == expected if expected else found[0] == 0
