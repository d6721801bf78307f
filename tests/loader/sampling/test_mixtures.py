# SPDX-License-Identifier: Apache-2.0
"""Mixtures of datasets: what a loader gives, resumes and reports, and what is refused."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.loader.datasets import CORE, assert_equal, copied, write
from tests.loader.sampling.runs import assert_equal_lengths, fresh, run, same, shapes

import headrace
from headrace import Mixture
from headrace.errors import CorruptImage, HeadraceError, InvalidState
from headrace.transforms import CenterCrop, HorizontalFlip, RandomCrop, Resize

COPY = 1 << 30


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Three datasets of 9, 14 and 5 samples; the middle one has two renditions of each image."""
    folder = tmp_path_factory.mktemp("mixture")
    twice = {
        "version": 1,
        "fields": {"image": {"renditions": 2, "shares": [{"format": name, "share": 0.5} for name in ("hri", "raw")]}},
    }
    return [
        write(folder / "a.hr", 9, formats=CORE),
        write(folder / "b.hr", 14, plan=twice),
        write(folder / "c.hr", 5, formats=("png", "raw")),
    ]


def load(mixture, **options):
    options = {"batch_size": 4, "output": "numpy", "num_workers": 2, "shuffle": True, **options}
    return headrace.Loader(mixture, **options)


def counted(taken, lengths):
    ends = np.cumsum(lengths)
    return Counter(int(np.searchsorted(ends, index % COPY, side="right")) for index in fresh(taken))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 20), min_size=3, max_size=3),
    st.sampled_from(["first", "all", 50]),
    shapes,
    shapes,
    st.integers(0, 12),
)
def test_each_sample_comes_once_per_pass_also_after_an_interruption(paths, weights, stop, first, second, step):
    """Whatever the batches before and after: each part has its samples once, then again, within one of its share."""
    mixture = Mixture(dict(zip(paths, weights, strict=True)), stop=stop)
    opened = mixture.sampler(shuffle=True)
    whole, _ = run(opened, first)
    before, progress = run(opened, first, stop=step)
    after, _ = run(opened, second, progress=progress)
    exact, _ = run(opened, first, progress=progress)

    assert sorted(fresh(before) + fresh(after)) == sorted(fresh(whole))
    assert same(before + exact, whole)
    assert_equal_lengths(whole + after)
    n = mixture.samples_per_epoch()
    assert len(fresh(whole)) == len(set(fresh(whole))) == n
    for taken in (whole, before):
        count, got = counted(taken, mixture.lengths), len(fresh(taken))
        for part, weight in enumerate(weights):
            assert abs(count[part] - got * weight / sum(weights)) <= 1 + 1e-6
    counts = counted(whole, mixture.lengths)
    if stop == "first":
        assert all(counts[part] <= length for part, length in enumerate(mixture.lengths))
    if stop == "all":
        assert len({index % COPY for index in fresh(whole)}) == sum(mixture.lengths)


def test_batches_have_the_samples_of_their_datasets(paths):
    """Pixels, labels and boxes are those of the single datasets, with draws of the sample's own."""
    mixture = Mixture(paths)
    with load(mixture, shuffle=False) as loader:
        batches = [copied(batch) for batch in loader]
    expected = [mixture[index] for index in range(len(mixture))]
    by_name = Counter()
    found = {}
    for batch in batches:
        for at, name in enumerate(batch["name"]):
            by_name[name] += 1
            found.setdefault((name, batch["image"][at].shape[1:]), []).append(
                {key: batch[key][at] for key in batch if key != "_repeat"}
            )
    assert sum(by_name.values()) == len(mixture) == 28
    for sample in expected:
        key = (sample["name"], sample["image"].shape[:2])
        assert_equal(np.moveaxis(sample["image"], -1, 0), found[key][0]["image"])
        assert_equal(np.asarray(sample["boxes"].xyxy), np.asarray(found[key][0]["boxes"].xyxy))


def test_a_run_continues_where_it_was_interrupted(paths):
    """Threads, epochs and interruptions do not change the batches, crops included."""
    options = {"transform": [Resize(40), RandomCrop(20), HorizontalFlip()], "seed": 4}
    weights = {paths[0]: 0.6, paths[1]: 0.4}
    with load(Mixture(weights, stop=40), **options) as loader:
        assert len(loader) == 10
        list(loader)
        whole = [copied(batch) for batch in loader]
    with load(Mixture(weights, stop=40), num_workers=0, **options) as loader:
        loader.set_epoch(1)
        iteration = iter(loader)
        before = [copied(next(iteration)) for _ in range(4)]
        state = json.loads(json.dumps(loader.state_dict()))
        parts = loader.stats().sampling["parts"].values()
    with load(Mixture(weights, stop=40), **options) as loader:
        loader.load_state_dict(state)
        after = [copied(batch) for batch in loader]

    assert_equal(before + after, whole)
    assert [part["samples"] for part in parts] in ([10, 6], [9, 7])
    assert [round(part["target"], 3) for part in parts] == [0.6, 0.4]


def test_a_sample_that_comes_again_has_other_crops(paths):
    """The second pass of a small dataset has random draws of its own."""
    with load(Mixture([paths[2]], stop=10), batch_size=10, shuffle=False, transform=[RandomCrop(20)]) as loader:
        batch = next(iter(loader))

    assert batch["label"].tolist() == [0, 1, 2, 3, 4] * 2
    assert any((batch["image"][at] != batch["image"][at + 5]).any() for at in range(5))


def test_datasets_have_transforms_of_their_own(paths):
    """One dataset is flipped, the other one is not; boxes follow, and the batch is one array."""
    own = {paths[1]: [Resize((24, 24)), HorizontalFlip(1.0)]}
    mixture = Mixture(paths[:2], transforms=own)
    for workers in (0, 2):
        with load(mixture, shuffle=False, batch_size=23, transform=[Resize((24, 24))], num_workers=workers) as loader:
            batch = next(iter(loader))
        assert batch["image"].shape == (23, 3, 24, 24)
        flipped = {number: headrace.open(paths[1], transform=own[paths[1]])[number] for number in range(14)}
        plain = {number: headrace.open(paths[0], transform=[Resize((24, 24))])[number] for number in range(9)}
        for at, label in enumerate(batch["label"].tolist()):
            either = [each[label] for each in (plain, flipped) if label in each]
            match = [each for each in either if (each["image"] == batch["image"][at]).all()]
            assert match
            assert any(np.array_equal(each["boxes"].xyxy, batch["boxes"][at].xyxy) for each in match)
    ragged = Mixture(paths[:2], transforms={1: [CenterCrop(30)]})
    with load(ragged, shuffle=False, batch_size=23, transform=[Resize((24, 24))]) as loader:
        assert {image.shape[1:] for image in next(iter(loader))["image"]} == {(24, 24), (30, 30)}


def test_weights_change_between_epochs_and_are_part_of_the_state(paths):
    """A curriculum: the epoch in progress keeps its weights, the next one has the new ones, also after a resume."""

    def shares(loader):
        return [part["samples"] for part in loader.stats().sampling["parts"].values()]

    mixture = Mixture({paths[0]: 1, paths[1]: 1}, stop=24)
    with load(mixture) as loader:
        iteration = iter(loader)
        next(iteration)
        mixture.set_weights({paths[0]: 0, paths[1]: 1})
        middle = loader.state_dict()
        list(iteration)
        assert shares(loader) == [12, 12]
        end = loader.state_dict()
        list(loader)
        assert shares(loader) == [0, 24]
        assert mixture.weights == {str(paths[0]): 0.0, str(paths[1]): 1.0}
    for state, expected in ((middle, [12, 12]), (end, [0, 24])):
        again = Mixture({paths[0]: 1, paths[1]: 1}, stop=24)
        with load(again) as loader:
            loader.load_state_dict(state)
            list(loader)
            assert shares(loader) == expected
            list(loader)
            assert shares(loader) == [0, 24]


def test_counts_and_temperature(paths):
    """Counts are exact; a temperature of 1 is by size, a high one is even."""
    exact = Mixture({paths[0]: 20, paths[1]: 3}, exact=True)
    taken, _ = run(exact.sampler(shuffle=True), (4, 2))
    assert counted(taken, exact.lengths) == {0: 20, 1: 3}
    assert Mixture(paths).samples_per_epoch() == 28
    assert max(Mixture(paths, temperature=1e6).weights.values()) < 0.334
    cold = Mixture(paths[:2], temperature=0.5).weights
    assert cold[str(paths[1])] / cold[str(paths[0])] == pytest.approx((14 / 9) ** 2)


def test_views_are_parts_and_mixtures_are_sequences(paths):
    """A part may be a selection; PyTorch's DataLoader reads a mixture as a sequence."""
    view = headrace.open(paths[0]).select([2, 4])
    mixture = Mixture({view: 1, paths[2]: 1}, stop="all", fields=["label", "name"])
    with load(mixture) as loader:
        names = Counter(int(label) for batch in loader for label in batch["label"])
    assert set(names) == {0, 1, 2, 3, 4}
    assert len(mixture) == 7
    assert list(mixture[0]) == ["label", "name"]
    assert [sample["label"] for sample in mixture[1:4]] == [4, 0, 1]
    assert mixture[-1]["label"] == mixture.column("label")[-1] == 4
    assert [sample["label"] for sample in mixture.__getitems__([0, 6])] == [2, 4]
    with pytest.raises(IndexError, match="index must be in"):
        mixture[7]
    with pytest.raises(TypeError, match="works with a single dataset"):
        mixture.select([1])


def test_mixtures_and_loaders_of_them_can_be_pickled(paths):
    """A copy gives the same batches."""
    with load(Mixture({paths[0]: 2, paths[1]: 1}, stop=12)) as loader:
        copy = pickle.loads(pickle.dumps(loader))
        expected = [copied(batch) for batch in loader]
    with copy:
        assert_equal([copied(batch) for batch in copy], expected)


def test_damage_names_the_dataset(paths, tmp_path):
    """An image that cannot be decoded is reported with the path of its dataset."""
    damaged = write(tmp_path / "damaged.hr", 5, formats=("hri:fast",))
    shard = next((damaged / "shards").glob("*.hrs"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    shard.write_bytes(content)
    with (
        load(Mixture([paths[0], damaged])) as loader,
        pytest.raises(CorruptImage, match=r"damaged\.hr: sample 'sample/"),
    ):
        list(loader)
    with load(Mixture([paths[0], damaged]), on_error="skip") as loader:
        list(loader)
        assert loader.stats().error_count > 0


def test_a_part_that_was_built_again_is_noticed(paths, tmp_path):
    """Each shard is checked against the dataset that it belongs to."""
    part = write(tmp_path / "part.hr", 5, formats=("raw",))
    with load(Mixture([paths[0], part]), shuffle=False, batch_size=14) as loader:
        manifest = part / "dataset.json"
        manifest.write_bytes(manifest.read_bytes() + b" ")
        with pytest.raises(HeadraceError, match="rebuilt or removed since it was opened"):
            list(loader)
    with load(Mixture([paths[0], paths[2]]), shuffle=False, batch_size=14) as loader:
        assert len(list(loader)) == 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda *_: Mixture([]), ValueError, "1 to 256 datasets"),
        (lambda a, *_: Mixture(a), TypeError, "must have a dict or a list of datasets"),
        (lambda a, b: Mixture({a: -1, b: 1}), ValueError, r"each weight must be a finite number >= 0; .*a.hr has -1"),
        (lambda a, b: Mixture({a: 0, b: 0}), ValueError, "at least one weight must be above 0"),
        (lambda a, *_: Mixture({a: 0.5}, exact=True), ValueError, "must be a count of samples >= 0"),
        (lambda a, *_: Mixture([a], exact=True), ValueError, "exact needs the number"),
        (lambda a, *_: Mixture({a: 1}, exact=True, stop=4), ValueError, "together with exact"),
        (lambda a, *_: Mixture({a: 1}, stop="last"), ValueError, "stop must be 'first', 'all' or a number"),
        (lambda a, *_: Mixture({a: 1}, temperature=2), ValueError, "temperature must not be set together"),
        (lambda a, *_: Mixture([a], temperature=0), ValueError, "temperature must be a number of at least 0.01"),
        (lambda a, *_: Mixture([a], fields=["labels"]), ValueError, "has no field 'labels'"),
        (lambda a, *_: Mixture([a], transforms={"x": []}), ValueError, "transforms has 'x', which is no part"),
        (lambda a, *_: Mixture([Mixture([a])]), ValueError, "no mixture and no patches"),
        (lambda a, b: Mixture({a: 1, b: 1e-12}), ValueError, "is too small beside the others: omit"),
        (lambda a, b: Mixture({a: 1, b: 1e-9}), ValueError, "each share must be 0 or at least 1/131072"),
        (
            lambda a, b: Mixture({a: 1, b: 1}).set_weights({a: 1}),
            ValueError,
            r"must have every part; .*b.hr is missing",
        ),
        (lambda a, b: Mixture({a: 1, b: 1}).set_weights([1]), ValueError, "there must be 2 weights"),
        (lambda a, *_: load(Mixture([a]), weights=[1]), ValueError, "weights must not be set together with a mixture"),
        (lambda a, *_: load(Mixture([a]), decode="device"), ValueError, "decode must be 'cpu' or 'auto'"),
        (lambda a, *_: load(Mixture([a]), offload="x"), ValueError, "offload must not be set together with"),
        (lambda a, *_: load(Mixture([a], transforms={0: [len]})), ValueError, "must be declarative"),
    ],
)
def test_wrong_arguments_say_what_must_hold(paths, make, error, message):
    """Each error names the argument and what was found."""
    with pytest.raises(error, match=message):
        make(paths[0], paths[1])


def test_fields_are_aligned_by_name(tmp_path, paths):
    """Fields that some dataset lacks are left out; one name must have one type; classes must be equal."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (8, 8, 3), np.uint8)
    with headrace.Writer(tmp_path / "x.hr", fields={"label": "int64", "image": "image"}) as writer:
        writer.write({"image": image, "label": 3}, key="x")
    with headrace.Writer(tmp_path / "y.hr", fields={"label": "str", "image": "image"}) as writer:
        writer.write({"image": image, "label": "cat"}, key="y")

    assert set(Mixture([paths[0], tmp_path / "x.hr"]).fields) == {"image", "label"}
    with pytest.raises(
        ValueError, match=r"field 'label' must have one type in all parts; .*x.hr has int64, .*y.hr has str"
    ):
        Mixture([tmp_path / "x.hr", tmp_path / "y.hr"])
    assert set(Mixture([tmp_path / "x.hr", tmp_path / "y.hr"], fields=["image"]).fields) == {"image"}
    with pytest.raises(HeadraceError, match="must have a field in common"):
        Mixture([tmp_path / "x.hr", tmp_path / "y.hr"], fields=[])


def test_damaged_states_are_refused(paths):
    """Shares of a state are claims until they are checked."""
    with load(Mixture({paths[0]: 2, paths[1]: 1})) as loader:
        state = loader.state_dict()
        for shares in ([1], [1, -1], [0, 0], "x", [1.0, 2.0]):
            with pytest.raises(InvalidState, match="the state is damaged"):
                loader.load_state_dict({**state, "sampler": {"progress": None, "settings": {"shares": shares}}})
    with load(Mixture({paths[1]: 2, paths[0]: 1})) as loader, pytest.raises(InvalidState, match="fingerprint"):
        loader.load_state_dict(state)
