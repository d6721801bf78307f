# SPDX-License-Identifier: Apache-2.0
"""The peers' programs measure what they say and draw crops inside the image; none is missing."""

import importlib
import json
import multiprocessing
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from benchmarks._loaders.cases import CONTENDERS, PROGRAMS, Environments

import headrace

sys.path.insert(0, str(PROGRAMS))
import pictures
import protocol

sys.path.remove(str(PROGRAMS))

JOB = protocol.Job(data=PROGRAMS, crop="center", size=8, batch_size=4, workers=1, epochs=2, seed=0, variant="")


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def batches(n):
    for start in range(n):
        yield np.full((4, 3, 8, 8), start, np.float32), [1, 1, 2, 2]


def test_a_run_counts_images_and_marks_each_epoch():
    found = protocol.measure(lambda job: (batches(3) for _ in range(job.epochs)), JOB)

    assert found["images"] == 24
    assert [mark["images"] for mark in found["epochs"]] == [12, 24]
    assert found["shapes"] == [(3, 8, 8)]
    assert found["dtypes"] == ["float32"]
    assert found["mean"] == 1
    assert found["mean_label"] == 1.5
    assert 0 < found["first_batch_seconds"] < found["epochs"][0]["seconds"] <= found["seconds"]


def test_cpu_time_is_that_of_the_start_the_end_and_of_processes_that_run_or_have_ended():
    context = multiprocessing.get_context("fork")

    def load(job):
        burn(0.1)
        ended = context.Process(target=burn, args=(0.2,))
        ended.start()
        ended.join()
        burnt = context.Event()
        running = context.Process(target=lambda: (burn(0.2), burnt.set(), time.sleep(60)))
        running.start()
        assert burnt.wait(60)
        for _ in range(job.epochs):
            yield batches(1)
        running.kill()
        running.join()
        burn(0.1)

    found = protocol.measure(load, JOB)

    # Nothing that was burnt is missing. Forking and ending a process as large as a test run's costs time as well.
    assert 0.49 <= found["epochs"][0]["cpu_seconds"] < 1
    assert 0.59 <= found["cpu_seconds"] < 1.2


@pytest.mark.parametrize(("height", "width"), [(1024, 2048), (400, 533), (64, 64), (3, 900), (900, 3)])
def test_crops_lie_inside_the_image(height, width):
    rng = np.random.default_rng(0)
    for _ in range(200):
        left, top, right, bottom = pictures.box("random-resized", 224, height, width, rng)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_plain_crops_have_their_size_and_the_centre_is_the_centre():
    rng = np.random.default_rng(0)
    boxes = {pictures.box("random", 512, 1024, 2048, rng) for _ in range(50)}

    assert len(boxes) > 40
    assert {(right - left, bottom - top) for left, top, right, bottom in boxes} == {(512, 512)}
    assert pictures.box("center", 56, 64, 64, rng) == (4, 4, 60, 60)


def test_pillows_step_normalizes_to_chw():
    image = np.zeros((64, 64, 3), np.uint8)
    image[..., 0] = 255
    normalised = pictures.normalise(image)

    assert normalised.shape == (3, 64, 64)
    assert normalised.dtype == np.float32
    wanted = (np.array([1, 0, 0]) - protocol.MEAN) / protocol.STD
    np.testing.assert_allclose(normalised[:, 0, 0], wanted, rtol=1e-5)


def test_every_loader_has_its_program_and_every_program_but_ours_its_requirements():
    programs = {contender.program for contender in CONTENDERS}

    assert programs == {path.stem.removeprefix("load_") for path in PROGRAMS.glob("load_*.py")}
    assert (programs | {"timm"}) - {"headrace"} == {path.stem for path in PROGRAMS.glob("*.txt")}  # timm: transforms.py


@pytest.fixture
def dataset(tmp_path):
    """Twenty images for our own program."""
    pytest.importorskip("torch")
    images = ({"image": np.full((40, 48, 3), number, np.uint8), "label": number % 3} for number in range(20))
    headrace.build(images, tmp_path / "set.hr", format="raw")
    return tmp_path / "set.hr"


def assert_twice_all(found):
    assert found["images"] == 40
    assert [tuple(shape) for shape in found["shapes"]] == [(3, 16, 16)]
    assert found["mean_label"] == pytest.approx(19 / 20)


def test_our_loader_returns_each_image_once_per_epoch(dataset, monkeypatch):
    monkeypatch.syspath_prepend(PROGRAMS)
    ours = importlib.import_module("load_headrace")
    job = replace(JOB, data=dataset, crop="random-resized", size=16, batch_size=8)

    assert_twice_all(protocol.measure(ours.load, job))


@pytest.mark.slow
def test_our_program_keeps_to_the_protocol(dataset):
    options = {"crop": "random-resized", "size": 16, "batch-size": 8, "workers": 1, "epochs": 2, "seed": 0}
    arguments = ["run", str(dataset), *(f"--{key}={value}" for key, value in options.items()), "--variant=dataloader"]
    command = Environments().command("headrace", arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    assert_twice_all(json.loads(done.stdout.splitlines()[-1]))
