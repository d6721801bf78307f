# SPDX-License-Identifier: Apache-2.0
"""Every sampler keeps its promise for all world sizes, batch sizes and places where a run is interrupted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loader.sampling.runs import FakeDataset, assert_equal_lengths, fresh, run, same, shapes

from headrace.errors import InvalidState
from headrace.samplers import Buckets, ClassBalanced, EpochRequest, Grouped, PerClass, Repeated

COPY = 1 << 30
sides = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=70)
labels = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def images(sizes):
    height, width = np.array(sizes).T
    return FakeDataset({"image": "image"}, image__0__height=height, image__0__width=width)


def labelled(values):
    return FakeDataset({"label": "int64"}, label=values)


@settings(max_examples=25, deadline=None)
@given(sides, shapes, shapes, st.integers(0, 12), st.sampled_from(["shape", "aspect", "area", "longest"]))
def test_buckets_have_each_image_once_also_after_an_interruption(sizes, first, second, stop, by):
    """Each step has one bucket and one length on all ranks; other batches may continue the epoch."""
    opened = Buckets(by=by, count=3).open(images(sizes))

    whole, _ = run(opened, first)
    before, progress = run(opened, first, stop=stop)
    after, _ = run(opened, second, progress=progress)

    assert sorted(fresh(whole)) == list(range(len(sizes)))
    assert sorted(fresh(before) + fresh(after)) == list(range(len(sizes)))
    for taken in (whole, after):
        assert_equal_lengths(taken)
    if by == "shape":
        for step in whole + after:
            assert len({sizes[index] for indices, _ in step for index in indices}) == 1
    exact, _ = run(opened, first, progress=progress)
    assert same(before + exact, whole)


@settings(max_examples=20, deadline=None)
@given(sides, shapes)
def test_buckets_drop_what_does_not_fill_a_batch(sizes, shape):
    """With drop_last every batch is full and nothing is repeated."""
    taken, _ = run(Buckets(by="aspect", count=3).open(images(sizes)), shape, drop_last=True)

    assert all(len(indices) == shape[0] and repeats is None for step in taken for indices, repeats in step)
    assert len(set(fresh(taken))) == len(fresh(taken))


def test_buckets_report_padding():
    """The padding is that of the largest image of each global batch, over all ranks."""
    opened = Buckets(edges=(1.0,), shuffle=False).open(images([(10, 5), (10, 10), (20, 10), (10, 20)]))
    taken, _ = run(opened, (1, 2))
    samples = opened.start(request((1, 2)))

    assert [sorted(fresh([step])) for step in taken] == [[0, 2], [1, 3]]
    assert samples.shape(0) == (20, 10)
    assert samples.stats(0)["padding"] == 0
    assert samples.stats(1) == {"buckets": 2, "padding": 1 - 250 / 400}
    assert samples.stats(2)["padding"] == 1 - (250 + 300) / (400 + 400)


def request(shape, **more):
    return EpochRequest(epoch=0, seed=0, batch_size=shape[0], world_size=shape[1], **more)


@settings(max_examples=25, deadline=None)
@given(labels, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
def test_classes_come_equally_often(values, m, classes, world, stop):
    """At every point of the epoch no class is more than one unit ahead of another one."""
    opened = PerClass(m, length=4 * len(values)).open(labelled(values))
    shape = (m * classes, world)
    whole, _ = run(opened, shape, drop_last=True)
    before, progress = run(opened, shape, drop_last=True, stop=stop)
    after, _ = run(opened, shape, drop_last=True, progress=progress)

    assert same(before + after, whole)
    seen = Counter(dict.fromkeys(values, 0))
    for step in whole:
        assert_equal_lengths([step])
        for indices, _ in step:
            units = indices.reshape(-1, m) % COPY
            assert all(len({values[index] for index in unit}) == 1 for unit in units)
        seen.update(values[index % COPY] for indices, _ in step for index in indices)
        # A round may end in the middle of a step, whose units are divided among the ranks.
        assert max(seen.values()) - min(seen.values()) <= m
    indices = fresh(whole)
    assert len(set(indices)) == len(indices)  # what comes again is a copy


@settings(max_examples=20, deadline=None)
@given(labels, shapes, shapes, st.integers(0, 9))
def test_balanced_classes_continue_with_other_batches(values, first, second, stop):
    """The samples before and after an interruption are those of the whole epoch, in any division."""
    opened = ClassBalanced().open(labelled(values))
    whole, _ = run(opened, first)
    before, progress = run(opened, first, stop=stop)
    after, _ = run(opened, second, progress=progress)

    assert sorted(fresh(before) + fresh(after)) == sorted(fresh(whole))
    assert len(fresh(whole)) == len(values)


@settings(max_examples=25, deadline=None)
@given(labels, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9), st.booleans())
def test_frames_of_a_sequence_stay_together(values, size, clips, world, stop, drop):
    """A clip is in one batch of one rank, in the order of the dataset; every frame comes once."""
    opened = Grouped("label", size, drop_short=drop).open(labelled(values))
    before, progress = run(opened, (size * clips, world), stop=stop)
    after, _ = run(opened, (size, world + 1), progress=progress)

    counts = Counter(values)
    expected = sum(n // size * size for n in counts.values()) if drop else len(values)
    assert len(fresh(before) + fresh(after)) == len(set(fresh(before) + fresh(after))) == expected
    for step in before + after:
        assert_equal_lengths([step])
        for indices, _ in step:
            for clip in indices.reshape(-1, size).tolist():
                assert len({values[index] for index in clip}) == 1
                assert clip == sorted(clip)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 50), st.integers(1, 4), shapes, shapes, st.integers(0, 9))
def test_repeated_samples_are_copies_on_other_ranks(n, times, first, second, stop):
    """Each sample comes `times` times with different copies; neighbours are on different ranks."""
    opened = Repeated(times).open(labelled([0] * n))
    whole, _ = run(opened, first)
    before, progress = run(opened, first, stop=stop)
    after, _ = run(opened, second, progress=progress)

    expected = sorted(index + COPY * copy for index in range(n) for copy in range(times))
    assert sorted(fresh(whole)) == sorted(fresh(before) + fresh(after)) == expected
    if first[1] >= times:  # then one rank has no sample twice in a row
        for step in whole:
            for indices, repeats in step:
                own = indices[::1] % COPY if repeats is None else indices[~repeats] % COPY
                assert (own[1:] != own[:-1]).all()


def test_epochs_and_seeds_differ():
    """Another epoch or seed has another order; the same ones have the same."""
    for sampler, dataset in (
        (Buckets(), images([(k % 7 + 1, k % 5 + 1) for k in range(60)])),
        (ClassBalanced(), labelled([k % 7 for k in range(60)])),
        (Grouped("label", 2), labelled([k // 6 for k in range(60)])),
        (Repeated(2), labelled([0] * 60)),
    ):
        opened = sampler.open(dataset)
        first, _ = run(opened, (4, 2))
        assert same(first, run(sampler.open(dataset), (4, 2))[0])
        assert not same(first, run(opened, (4, 2), epoch=4)[0])
        assert not same(first, run(opened, (4, 2), seed=6)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Buckets(by="colour"), "by must be one of 'shape', 'aspect'"),
        (lambda: Buckets(count=0), r"count must be an integer in \[1, 4096\]; got 0"),
        (lambda: Buckets(edges=(2.0, 1.0)), "edges must be ascending"),
        (lambda: Buckets(by="shape", edges=(1.0,)), "none with by='shape'"),
        (lambda: Buckets(field="label").open(labelled([1])), "field must be an image field; got 'label'"),
        (lambda: ClassBalanced("name").open(labelled([1])), "by must be a field of integers or strings, .* label"),
        (lambda: ClassBalanced(length=0), "length must be at least 1; got 0"),
        (lambda: PerClass(0), "m must be at least 1; got 0"),
        (lambda: Grouped("label", 0), "size must be at least 1; got 0"),
        (lambda: Repeated(0), "times must be at least 1; got 0"),
        (lambda: Repeated(2, length=9).open(labelled([1])), "length must be at most 2 times 1 samples; got 9"),
        (lambda: PerClass(3).open(labelled([1])).start(request((4, 1))), "batch_size must be a multiple of 3"),
    ],
)
def test_wrong_arguments_say_what_must_hold(make, message):
    """Errors name the argument, what must hold and what was found."""
    with pytest.raises(ValueError, match=message):
        make()


def test_damaged_progress_is_refused():
    """A state that does not fit the sampler raises InvalidState."""
    buckets = Buckets().open(images([(1, 1)] * 9))
    good = run(buckets, (2, 1), stop=2)[1]
    for change in ({"starts": [1, 2]}, {"starts": "x"}, {"stride": 0}, {"batches": 99}, {"drop_last": 1}):
        with pytest.raises(InvalidState, match="the state is damaged"):
            buckets.start(request((2, 1), progress={**good, **change}))
    with pytest.raises(InvalidState, match="samples must be an integer"):
        Repeated().open(labelled([0])).start(request((2, 1), progress={"samples": 99}))
