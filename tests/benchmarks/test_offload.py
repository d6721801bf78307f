# SPDX-License-Identifier: Apache-2.0
"""The offload benchmark: its arithmetic, its tables, and a short run."""

import json
import subprocess
import sys

import pytest
from benchmarks._offload import report
from benchmarks._offload.product import SPARE_HOST, STRATEGIES, Counts
from benchmarks._offload.run import HOST, WORKER, Measured, ready_before
from benchmarks._offload.sources import SOURCES, make_dataset

import headrace


def a_round(**batches):
    """One second per measurement, with so many batches."""
    found = {HOST: 10, WORKER: 3, "mte": 12, "wrr": 13, "paced": 13} | batches
    return {name: Measured(seconds=1.0, batches=n) for name, n in found.items()}


def test_batches_that_lay_ready_do_not_count():
    assert ready_before(Counts(taken=5, prepared=20), Counts(taken=15, prepared=26)) == 4
    assert ready_before(Counts(taken=5, prepared=20), Counts(taken=15, prepared=40)) == 0
    assert report.batches_per_second(Measured(seconds=2.0, batches=24, ready_before=4)) == 10


def test_ratios_are_taken_within_a_round():
    slower = {name: Measured(seconds=2.0, batches=found.batches) for name, found in a_round().items()}
    rows = report.gain_rows("png", 32, [a_round(), slower])

    assert [row["strategy"] for row in rows] == list(STRATEGIES)
    assert rows[0]["images_per_second"] == [12 * 32, 6 * 32]
    assert rows[0]["gain"] == pytest.approx([1.2, 1.2])
    assert rows[1]["of_sum"] == pytest.approx([1.0, 1.0])


def test_the_saving_is_of_the_hosts_cpu_at_the_trainers_speed():
    rounds = [
        {
            HOST: Measured(1.0, 10, host_cpu_seconds=0.6),
            SPARE_HOST: Measured(1.0, 10, offloaded=4, host_cpu_seconds=0.39),
        }
    ]
    row = report.saving_row("png", 32, rounds)

    assert row["saved"] == pytest.approx([0.35])
    assert row["offloaded"] == [0.4]
    assert row["speed"] == [1.0]
    assert row["host_cpu_ms_per_batch"] == pytest.approx([60])
    assert report.saving_table({"saving": [row]}).rows[0][3:] == ["35.0%", "40.0%", "1.00x"]


def test_the_table_has_the_median_and_the_range():
    rounds = [a_round(paced=n) for n in (11, 12, 13)]
    (line,) = report.gain_table({"gain": report.gain_rows("hri", 64, rounds)}).rows

    assert line[:3] == ["hri, batch size 64", "640", "0.30"]
    assert line[-2:] == ["1.20x (1.10 to 1.30)", "92.3%"]


def test_images_have_the_size_of_their_source(tmp_path):
    dataset = headrace.open(make_dataset(SOURCES["small"], None, tmp_path / "small.hr"))

    assert len(dataset) == SOURCES["small"].images
    assert dataset[0]["image"].shape == (32, 32, 3)


def test_a_folder_without_images_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must hold PNG, JPEG or WebP files; found none"):
        make_dataset(SOURCES["png"], tmp_path, tmp_path / "png.hr")


@pytest.mark.slow
def test_a_short_run_measures_every_strategy(root, tmp_path):
    output = tmp_path / "offload.json"
    options = ["--sources", "small", "--share", "0.5", "--seconds", "0.3", "--rounds", "1", "-o", str(output)]
    command = [sys.executable, str(root / "benchmarks" / "offload.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    assert document["command"] == "python benchmarks/offload.py --sources small --share 0.5 --seconds 0.3 --rounds 1"
    assert [row["strategy"] for row in document["gain"]] == list(STRATEGIES)
    assert all(row["gain"][0] > 0 and row["worker_images_per_second"][0] > 0 for row in document["gain"])
    (saving,) = document["saving"]
    assert saving["offloaded"][0] > 0
