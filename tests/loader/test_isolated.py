# SPDX-License-Identifier: Apache-2.0
"""`isolate=True` gives the same batches from another process, as many as the trainer likes to hold."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.loader.datasets import assert_equal, copied, labels, write

import headrace
from headrace.errors import CorruptDataset, HeadraceError
from headrace.loader._isolated_memory import Lease, allocate, get_tree, put_tree, tree_bytes
from headrace.transforms import ColorJitter, HorizontalFlip, Normalize, PerSample, RandomResizedCrop, Views

AUGMENT = [RandomResizedCrop(20), HorizontalFlip(), ColorJitter(brightness=0.3, hue=0.1), Normalize(0.5, 0.25)]


def loader(path, **options):
    options = {"batch_size": 6, "shuffle": True, "seed": 5, "output": "numpy", "num_workers": 2, **options}
    return headrace.Loader(path, **options)


def both(path, **options):
    """Two epochs of batches, made here and made there."""
    results = []
    for isolate in (False, True):
        with loader(path, isolate=isolate, **options) as made:
            results.append([copied(batch) for _ in range(2) for batch in made])
    return results


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transform": AUGMENT},
        {"transform": AUGMENT, "dtype": "float16", "layout": "HWC", "rank": 1, "world_size": 3},
        {"transform": [Views(2, [RandomResizedCrop(9)])], "drop_last": True},
        {"transform": AUGMENT, "fields": ["mask", "label"], "weights": np.arange(40), "shuffle": False},
        {"ragged": "pad", "indices": range(3, 30)},
        {"fields": ["label", "name"]},
    ],
    ids=["as stored", "augmented", "of three ranks", "views", "weighted", "padded", "no pixels"],
)
def test_the_batches_are_those_made_here(path, options):
    """Bit for bit, fields of all kinds and images in all formats, epoch after epoch."""
    here, there = both(path, **options)

    assert len(here) > 2
    assert_equal(here, there)


def test_a_list_of_batches_is_safe(core_path):
    """No batch is overwritten while it is held, however many there are."""
    with loader(core_path, isolate=True, transform=AUGMENT, batch_size=1) as made:
        expected = [copied(batch) for batch in made]
        made.set_epoch(0)
        held = list(made)
        assert_equal(expected, held)
        made.set_epoch(1)
        other = list(made)
        assert_equal(expected, held)
        assert labels(other) != labels(held)
    assert_equal(expected, held)  # after the other process has ended too


def test_memory_is_used_again(core_path):
    """A trainer that lets go of its batches needs a few pieces of memory, one that holds them one for each."""
    with loader(core_path, isolate=True, transform=AUGMENT, batch_size=2, prefetch_factor=2) as made:
        for _ in range(4):
            for batch in made:
                del batch
        slots = made._parts.workshop.source._process._slots
        assert 1 <= len(slots) <= 6
        held = list(made)
        assert len(slots) >= 20
        view = held[7]["image"][1:, :, 3:5]
        expected = view.copy()
        del held
        for batch in made:
            del batch
        assert len(slots) <= 10
        np.testing.assert_array_equal(view, expected)


def test_arrays_can_be_written_to(core_path):
    with loader(core_path, isolate=True, transform=AUGMENT) as made:
        batch = next(iter(made))
        batch["image"] *= 0
        assert not batch["image"].any()


def test_tensors_keep_their_memory(core_path):
    torch = pytest.importorskip("torch")
    with loader(core_path, isolate=True, transform=AUGMENT, batch_size=2, output="torch") as made:
        tensors = [batch["image"] for batch in made]
        made.set_epoch(0)
        for tensor, batch in zip(tensors, made, strict=True):
            assert torch.equal(tensor, batch["image"])


def test_functions_run_in_the_trainers_process(path):
    def mark(sample):
        return {**sample, "process": os.getpid()}

    with loader(path, isolate=True, transform=[RandomResizedCrop(8), PerSample(mark)]) as made:
        assert {int(process) for batch in made for process in batch["process"]} == {os.getpid()}
        assert made._parts.workshop.source.pid != os.getpid()


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_damage_is_dealt_with_alike(tmp_path, on_error):
    damaged = write(tmp_path / "damaged.hr", formats=("hri:fast",))
    ds = headrace.open(damaged)
    _, rendition = ds.read(11, "image")
    shard = damaged / rendition.shard
    content = bytearray(shard.read_bytes())
    content[rendition.offset + rendition.n_bytes // 2] ^= 255
    shard.write_bytes(content)
    results = []
    for isolate in (False, True):
        with loader(damaged, isolate=isolate, on_error=on_error, fields=["image", "label"]) as made:
            try:
                results.append([copied(batch) for batch in made])
            except HeadraceError as error:
                results.append(f"{type(error).__name__}: {error}")
    assert_equal(results[0], results[1])
    if on_error == "raise":
        assert "sample/11" in results[0]


def test_a_dataset_that_was_built_anew_is_noticed(tmp_path):
    path = write(tmp_path / "first.hr", 12)
    with loader(path, isolate=True) as made:
        path.rename(tmp_path / "away.hr")
        write(path, 13)
        source = made._parts.workshop.source
        with contextlib.suppress(subprocess.TimeoutExpired):
            source._process._popen.wait(10)  # so that it has ended before anything is asked of it
        for _ in range(2):
            with pytest.raises(CorruptDataset, match="built anew"):
                list(made)


def test_a_loader_may_wander_through_threads(core_path):
    """The process is not bound to the thread that happened to start it."""
    results, errors = [], []
    with loader(core_path, isolate=True, transform=AUGMENT) as made:

        def iterate():
            try:
                results.append([copied(batch) for batch in made])
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        for epoch in (0, 0):
            made.set_epoch(epoch)
            thread = threading.Thread(target=iterate)
            thread.start()
            thread.join()
        made.set_epoch(0)
        iterate()
    assert errors == []
    assert_equal(results[0], results[1])
    assert_equal(results[0], results[2])


def test_scripts_need_no_guard(core_path, tmp_path):
    """Nothing of the script is run again, and what it shadows in its folder does no harm."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, headrace\n"
        "print('once')\n"
        "loader = headrace.Loader(sys.argv[1], batch_size=4, output='numpy', isolate=True)\n"
        "print(sum(len(batch['label']) for batch in loader))\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script), str(core_path)], check=True, capture_output=True, text=True, cwd=tmp_path
    )

    assert ran.stdout.split() == ["once", "40"]
    assert ran.stderr == ""


def test_paths_may_be_relative(core_path, monkeypatch):
    monkeypatch.chdir(core_path.parent)
    with loader(Path(core_path.name), isolate=True) as made:
        assert sum(map(len, labels(made))) == 40


def test_arrays_survive_shared_memory():
    """Trees of arrays of any type and shape, with gaps where samples failed."""
    tree = [
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        [np.zeros((0, 5), np.uint16), None, [np.array(7, np.int16), np.ones(3, np.float16)]],
    ]
    handle, mapping = allocate(tree_bytes(tree))
    os.close(handle)
    described, end = put_tree(tree, np.asarray(mapping))

    assert end <= mapping.n_bytes
    assert_equal(get_tree(described, np.asarray(mapping)), tree)


def test_a_lease_ends_with_the_last_array():
    handle, mapping = allocate(100)
    os.close(handle)
    returned = []
    lease = Lease(mapping, lambda: returned.append(1))
    array = np.asarray(lease)[4:8].view(np.uint32).reshape(1, 1)
    array[:] = 3
    del lease, mapping
    other = array[0]
    del array
    assert returned == []
    assert other.tolist() == [3]
    del other
    assert returned == [1]
