# SPDX-License-Identifier: Apache-2.0
"""With an offload worker a loader gives the same batches, in the order of the strategy, and nothing else changes."""

from __future__ import annotations

import json
import logging
import pickle
import time

import numpy as np
import pytest
from tests.loader.datasets import COUNT, assert_equal, copied, labels, make_sample
from tests.offload.offloading import (
    OPTIONS,
    TRANSFORM,
    EagerWrr,
    left_behind,
    mte,
    numbers_of,
    offload_worker,
    paced,
    plain_batches,
    slot_order,
    wait_for_prepared,
)

import headrace
from headrace.loader import Loader
from headrace.offload import Offload
from headrace.offload.strategies._patterns import Pattern
from headrace.offload.strategies._strategies import Paced
from headrace.offload.worker._rank import PublishedBatches
from headrace.transforms import (
    MixUpCutMix,
    MultiCrop,
    Normalize,
    PerBatch,
    PerSample,
    RandomErasing,
    RandomResizedCrop,
    View,
)

BATCHES = COUNT // 2
STRATEGIES = {"paced": paced(), "mte": mte(12), "wrr": EagerWrr()}


@pytest.fixture
def exchange(core_path, tmp_path):
    """An exchange folder with an offload worker, which leaves nothing behind."""
    with offload_worker(core_path, tmp_path / "exchange"):
        yield tmp_path / "exchange"
    assert left_behind(tmp_path / "exchange") == []


def epoch_of(loader, *, pause=0.0):
    """The batches of an epoch, of which the offload worker has made some before they are asked for."""
    iteration = iter(loader)
    first = copied(next(iteration))
    wait_for_prepared(loader, 3)
    batches = [first]
    for batch in iteration:
        batches.append(copied(batch))
        time.sleep(pause)
    return batches


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_batches_are_those_of_a_loader_without_offload(core_path, exchange, strategy):
    """Every batch once in every epoch, bit for bit, boxes and strings and all; some of them from the offload worker."""
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=STRATEGIES[strategy])) as loader:
        assert len(loader) == BATCHES
        for epoch in range(3):
            got = epoch_of(loader, pause=0.002)
            order = numbers_of(got, plain_batches(core_path, epoch))
            assert sorted(order) == list(range(BATCHES))
            if strategy != "wrr":
                assert order == slot_order(BATCHES, STRATEGIES[strategy].recorded(epoch))
        figures = loader.stats().offload
    assert figures["offload_batches"] > 3
    assert figures["host_batches"] + figures["offload_batches"] == 3 * BATCHES
    assert figures["longest_wait_seconds"] <= figures["bound_seconds"] + 0.2


@pytest.mark.parametrize(
    "transform",
    [
        [RandomResizedCrop(9), Normalize(0.5, 0.25), RandomErasing(), MixUpCutMix(0.8, 1.0, num_classes=COUNT)],
        [MultiCrop([View(2, [RandomResizedCrop(12), Normalize(0.5, 0.25)]), View(3, [RandomResizedCrop(5)])])],
    ],
    ids=["mixed", "groups of views"],
)
def test_mixed_batches_and_groups_of_views_are_those_of_a_loader_without_offload(core_path, exchange, transform):
    """The offload worker makes the samples, and the host mixes them; groups of views come as they are."""
    options = {**OPTIONS, "transform": transform, "fields": ["image", "label"]}
    with Loader(core_path, **options) as loader:
        plain = [copied(batch) for batch in loader]
    with Loader(core_path, **options, offload=Offload(exchange, strategy=paced(1, 2))) as loader:
        got = epoch_of(loader, pause=0.002)
        figures = loader.stats().offload
    order = [
        next(at for at, each in enumerate(plain) if np.array_equal(each["label"], batch["label"])) for batch in got
    ]
    assert sorted(order) == list(range(BATCHES))
    assert_equal(got, [plain[at] for at in order])
    assert figures["offload_batches"] > 0


def test_the_host_helps_an_offload_worker_that_is_behind(core_path, exchange, monkeypatch):
    """A host that waits for a batch makes the next one of the worker, which continues with the one after it."""
    write = PublishedBatches.write

    def slowly(self, *args):
        time.sleep(0.03)
        write(self, *args)

    monkeypatch.setattr(PublishedBatches, "write", slowly)
    strategy = paced(1, 2)
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=strategy)) as loader:
        order = numbers_of(epoch_of(loader), plain_batches(core_path))
        figures = loader.stats().offload
    assert order == slot_order(BATCHES, strategy.recorded(0))
    assert figures["redone"]["helped"] > 1
    assert figures["offload_batches"] > 1
    assert figures["host_batches"] + figures["offload_batches"] == BATCHES
    assert not figures["redone"]["late"]


def test_a_recorded_plan_gives_the_same_order_again(core_path, exchange, tmp_path):
    """The same plan gives the same order, bit for bit: with an offload worker, with another's timing, and with none."""
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced(2, 5))) as loader:
        first = epoch_of(loader)
        plans = json.loads(json.dumps(loader.stats().offload["plans"]))
    (tmp_path / "empty").mkdir()
    for folder, pause in ((exchange, 0.005), (tmp_path / "empty", 0.0)):
        with Loader(core_path, **OPTIONS, offload=Offload(folder, strategy=Paced(plans=plans))) as loader:
            again = []
            for batch in loader:
                again.append(copied(batch))
                time.sleep(pause)
        assert_equal(again, first)


def test_the_plan_is_made_in_the_first_epoch_and_recorded(core_path, exchange):
    """Until both sides are timed the host goes on alone; what is decided then is a plan from the first slot on."""
    plain = plain_batches(core_path)
    strategy = Paced(spare_host=True)
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=strategy)) as loader:
        for epoch in range(3):
            got = []
            for number, batch in enumerate(loader):
                got.append(copied(batch))
                if number == 1:
                    wait_for_prepared(loader, 4)
                time.sleep(0.003)
            plain = plain_batches(core_path, epoch)
            plan = next((plan for plan in loader.stats().offload["plans"] if plan["epoch"] == epoch), None)
            pattern = Pattern.from_json(plan["pattern"]) if plan else Pattern()
            assert numbers_of(got, plain) == slot_order(BATCHES, pattern)
        seconds = loader.stats().offload["seconds_per_batch"]
    assert seconds["host"] > 0
    assert seconds["worker"] > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("cut", [7, pytest.param(1, marks=pytest.mark.slow), pytest.param(19, marks=pytest.mark.slow)])
def test_states_are_exact(core_path, exchange, strategy, cut):
    """A run that is cut and resumed gives what was left, in the same order if the strategy has one."""
    whole = plain_batches(core_path)
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=STRATEGIES[strategy])) as loader:
        iteration = iter(loader)
        begun = [copied(next(iteration))]
        wait_for_prepared(loader)
        begun += [copied(next(iteration)) for _ in range(cut - 1)]
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=STRATEGIES[strategy])) as loader:
        loader.load_state_dict(state)
        rest = [copied(batch) for batch in loader]
        assert loader.state_dict()["epoch"] == 1
        assert loader.state_dict()["version"] == 1
    order = numbers_of(begun, whole) + numbers_of(rest, whole)
    assert sorted(order) == list(range(BATCHES))
    if strategy != "wrr":
        assert order == slot_order(BATCHES, STRATEGIES[strategy].recorded(0))
    else:
        assert state["prongs"]["pattern"] is None


@pytest.mark.parametrize("offloaded", [False, True])
@pytest.mark.parametrize(("batch_size", "world_size"), [(3, 1), (2, 3)])
def test_the_rest_of_an_epoch_can_be_divided_again(core_path, exchange, batch_size, world_size, offloaded):
    """With another batch size, on more ranks, with or without offloading: each sample that is left comes once."""
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced())) as loader:
        iteration = iter(loader)
        had = [label for _ in range(9) for label in next(iteration)["label"].tolist()]
        state = loader.state_dict()
    assert (state["samples"], state["tail"]) == (14, 4)
    rest = []
    options = {**OPTIONS, "batch_size": batch_size}
    more = {"offload": exchange} if offloaded and world_size == 1 else {}
    for rank in range(world_size):
        with Loader(core_path, **options, rank=rank, world_size=world_size, **more) as loader:
            loader.load_state_dict(state)
            for batch in loader:
                repeat = batch.get("_repeat", np.zeros(len(batch["label"]), bool))
                rest += batch["label"][~repeat].tolist()
    assert sorted(had + rest) == list(range(COUNT))


def test_a_state_of_a_loader_without_offload_continues_with_offload(core_path, exchange):
    """It has version 1."""
    with Loader(core_path, **OPTIONS) as loader:
        iteration = iter(loader)
        had = [int(label) for _ in range(5) for label in next(iteration)["label"]]
        state = loader.state_dict()
        iteration.close()
    assert state["version"] == 1
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced())) as loader:
        loader.load_state_dict(state)
        rest = [label for batch in labels(loader) for label in batch]
    assert sorted(had + rest) == list(range(COUNT))


@pytest.mark.parametrize("drop_last", [False, True])
def test_all_ranks_follow_one_pattern(core_path, exchange, drop_last):
    """Rank 0 decides, the others read it in the exchange folder: at each step all have the same global batch."""
    options = {**OPTIONS, "batch_size": 3, "drop_last": drop_last}
    ranks = [
        Loader(
            core_path, **options, offload=Offload(exchange, strategy=Paced(spare_host=True)), rank=rank, world_size=2
        )
        for rank in range(2)
    ]
    plain = [
        plain_batches(core_path, epoch, **options, rank=rank, world_size=2) for epoch in range(2) for rank in (0, 1)
    ]
    seen = []
    for epoch in range(2):
        for step, batches in enumerate(zip(*ranks, strict=True)):
            orders = [numbers_of([copied(batch)], plain[2 * epoch + rank]) for rank, batch in enumerate(batches)]
            assert orders[0] == orders[1]
            assert ranks[0].state_dict() == ranks[1].state_dict()
            if step == 0:
                wait_for_prepared(ranks[0], 2)
            time.sleep(0.002)
            seen.append(len(batches[0]["label"]) + len(batches[1]["label"]))
    for loader in ranks:
        loader.close()
    assert sum(seen) == 2 * (36 if drop_last else COUNT)


def test_several_ranks_cannot_use_wrr(core_path, exchange):
    with (
        Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy="wrr"), rank=0, world_size=2) as loader,
        pytest.raises(ValueError, match="strategy must be 'paced' or 'mte' with 2 ranks"),
    ):
        iter(loader)


def test_functions_run_on_the_host(core_path, exchange):
    """The offload worker has no code; what the user's functions make of its batches is what they make of the host's."""

    def brighten(sample):
        return {**sample, "image": sample["image"] + 1}

    def with_mean(batch):
        return {**batch, "mean": batch["image"].mean()}

    options = {
        **OPTIONS,
        "transform": [*TRANSFORM, PerSample(brighten), PerBatch(with_mean)],
        "fields": ["image", "label"],
    }
    with Loader(core_path, **options, offload=Offload(exchange, strategy=paced())) as loader:
        got = epoch_of(loader)
        assert loader.stats().offload["offload_batches"] > 0
    numbers_of(got, plain_batches(core_path, **options))


@pytest.mark.parametrize("ragged", ["list", "pad"])
def test_images_of_differing_shape(core_path, exchange, ragged):
    options = {**OPTIONS, "transform": None, "ragged": ragged}
    with Loader(core_path, **options, offload=Offload(exchange, strategy=paced())) as loader:
        got = epoch_of(loader)
        assert loader.stats().offload["offload_batches"] > 0
    assert sorted(numbers_of(got, plain_batches(core_path, **options))) == list(range(BATCHES))


def test_a_selection_is_offloaded(core_path, exchange):
    options = {**OPTIONS, "indices": range(1, 40, 2)}
    with Loader(core_path, **options, offload=Offload(exchange, strategy=paced())) as loader:
        got = epoch_of(loader)
        assert loader.stats().offload["offload_batches"] > 0
    assert sorted(numbers_of(got, plain_batches(core_path, **options))) == list(range(10))


def test_a_small_dataset_that_is_repeated_for_a_long_epoch_is_offloaded(core_path, exchange):
    """An epoch of a million samples and more from 40 images, as of anybody who repeats a small dataset."""
    options = {
        **OPTIONS,
        "batch_size": 256,
        "fields": ["image"],
        "indices": np.resize(np.arange(COUNT), (1 << 20) + 256),
    }
    with Loader(core_path, **options, offload=Offload(exchange, strategy=paced())) as loader:
        batches = iter(loader)
        next(batches)
        wait_for_prepared(loader, 3)
        for _ in range(8):
            next(batches)
        assert loader.stats().offload["offload_batches"] > 0


def test_a_selection_that_is_too_long_is_an_error_that_is_logged(core_path, exchange, caplog, monkeypatch):
    monkeypatch.setattr("headrace.offload.host._session.max_rows", lambda _: 9)
    with Loader(core_path, **OPTIONS, indices=range(10), offload=exchange) as loader:
        assert len(labels(loader)) == 5
        assert loader.stats().offload["off"] == "indices: at most 9 can be offloaded; got 10"
    assert any("offloading is off: indices" in message for message in caplog.messages)


@pytest.mark.parametrize(("on_error", "samples"), [("skip", 39), ("replace", 40)])
def test_a_sample_that_fails_is_handled_by_the_host(tmp_path, on_error, samples):
    """The offload worker declines a batch with a damaged sample; the host makes it and follows `on_error`."""
    path = tmp_path / "damaged.hr"
    with headrace.Writer(path, fields={"image": "image", "label": "int64"}, format="hri:fast", workers=1) as writer:
        for number in range(COUNT):
            writer.write({"image": make_sample(number)["image"], "label": number})
    dataset = headrace.open(path)
    row = dataset.gather.pixel_columns("image", 0, np.array([38]))
    shard = next(iter(sorted((path / "shards").iterdir())))
    content = bytearray(shard.read_bytes())
    content[int(row["offset"][0]) + 200] ^= 0xFF
    shard.write_bytes(content)
    options = {**OPTIONS, "shuffle": False, "on_error": on_error}
    with (
        offload_worker(path, tmp_path / "exchange"),
        Loader(path, **options, offload=Offload(tmp_path / "exchange", strategy=paced(skip=12))) as loader,
    ):
        got = epoch_of(loader)
        figures = loader.stats()
    assert sum(len(batch["label"]) for batch in got) == samples
    assert figures.error_count == 1
    assert figures.offload["redone"]["bad"] == 1
    assert_equal(got, [plain_batches(path, **options)[number] for number in slot_order(BATCHES, Pattern(12, 1, 3))])


def test_an_offload_worker_that_gains_nothing_is_off_and_that_is_logged(core_path, exchange, caplog):
    """Forty small images take the host less time than the trainer: there is nothing to gain."""
    with caplog.at_level(logging.WARNING), Loader(core_path, **OPTIONS, offload=exchange) as loader:
        for _ in range(3):
            for number, _ in enumerate(loader):
                if number == 0:
                    wait_for_prepared(loader, 3)
                time.sleep(0.004)
        figures = loader.stats().offload
    assert figures["off"].startswith(("the trainer", "the link"))
    assert sum("offloading is off: the" in message for message in caplog.messages) <= 2
    assert figures["plans"][-1]["pattern"] == Pattern().to_json()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"weights": np.ones(COUNT), "shuffle": False},
            "weights: samples that are drawn by weight",
        ),
        ({"fields": ["label"], "transform": None}, "fields: at least one must be"),
    ],
)
def test_what_an_offload_worker_cannot_do_is_done_without_it(core_path, exchange, caplog, options, why):
    with caplog.at_level(logging.WARNING), Loader(core_path, **{**OPTIONS, **options}, offload=exchange) as loader:
        assert len(labels(loader)) == BATCHES
        assert loader.stats().offload["off"].startswith(why)
    assert any(why in message for message in caplog.messages)


def test_wrong_arguments_are_errors(core_path, exchange):
    with pytest.raises(ValueError, match="strategy must be one of 'paced', 'mte', 'wrr'"):
        Loader(core_path, offload=Offload(exchange, strategy="fast"))
    with pytest.raises(ValueError, match="decode must be 'cpu' or 'auto' if offload is given"):
        Loader(core_path, offload=exchange, decode="device", device="cpu")


def test_loaders_with_offload_can_be_pickled(core_path, exchange):
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced())) as loader:
        copy = pickle.loads(pickle.dumps(loader))
    with copy:
        assert numbers_of(epoch_of(copy), plain_batches(core_path)) == slot_order(BATCHES, Pattern(2, 1, 3))


def test_figures_are_json(core_path, exchange):
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced())) as loader:
        epoch_of(loader)
        figures = json.loads(json.dumps(loader.stats().to_json()))["offload"]
    assert figures["host"]["peak_bytes"] >= figures["host"]["mean_bytes"] > 0
    assert figures["worker"]["cpu_seconds"] > 0
    assert figures["exchange"]["read_batches"] >= figures["offload_batches"] > 0


def test_an_iteration_that_ends_early_leaves_no_files(core_path, exchange):
    """After a break the next epoch begins as ever; a loader that is dropped, not closed, ends by itself."""
    loader = Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced()))
    for number, _ in enumerate(loader):
        if number == 4:
            break
    assert numbers_of([copied(batch) for batch in loader], plain_batches(core_path, 1)) == slot_order(
        BATCHES, Pattern(2, 1, 3)
    )
    for _ in loader:
        break
    del loader
    deadline = time.monotonic() + 10
    while left_behind(exchange) and time.monotonic() < deadline:
        time.sleep(0.02)


def test_each_epoch_logs_once_what_it_gained(core_path, exchange, caplog):
    """In the figures and in one line of the log; an epoch that is left early says nothing."""
    caplog.set_level(logging.INFO, "headrace.loader")
    with Loader(core_path, **OPTIONS, offload=Offload(exchange, strategy=paced())) as loader:
        for _ in range(2):
            epoch_of(loader, pause=0.002)
        for _ in loader:
            break
        figures = loader.stats().offload
    lines = [message for message in caplog.messages if "the offload worker prepared" in message]
    assert [line.partition(":")[0] for line in lines] == ["epoch 0", "epoch 1"]
    assert [entry["epoch"] for entry in figures["epochs"]] == [0, 1]
    for entry, line in zip(figures["epochs"], lines, strict=True):
        assert entry["batches"] == BATCHES
        assert f"prepared {entry['offload_batches']} of {BATCHES} batches" in line
        assert entry["gained_seconds"] >= 0
    assert sum(entry["offload_batches"] for entry in figures["epochs"]) <= figures["offload_batches"]
