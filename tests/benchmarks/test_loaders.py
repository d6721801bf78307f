# SPDX-License-Identifier: Apache-2.0
"""The loaders' benchmark: its images, stores, tables and charts, and a short run."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from benchmarks._loaders import report, sources, stores
from benchmarks._loaders.cases import CONTENDERS, choose_cases, choose_contenders
from PIL import Image

from benchmarks import render, results


@pytest.fixture
def photographs(tmp_path):
    """A folder with a broad photograph, an upright one, and one that is too small."""
    folder = tmp_path / "data" / "clic"
    folder.mkdir(parents=True)
    y, x = np.mgrid[0:1200, 0:2048]
    slope = np.stack([x // 8, y // 5, (x + y) // 13], axis=2).astype(np.uint8)
    Image.fromarray(slope).save(folder / "broad.png")
    Image.fromarray(slope.transpose(1, 0, 2)).save(folder / "upright.png")
    Image.fromarray(slope[:800]).save(folder / "low.png")
    return folder


def a_run(*, cpu, start=0.0, epochs=2, mean=0.0):
    """A run of 100 images an epoch; each costs `cpu` milliseconds, the first epoch `start` seconds more."""
    marks = [
        {"images": 100 * n, "seconds": start + n * cpu / 20, "cpu_seconds": start + n * cpu / 10}
        for n in range(1, epochs + 1)
    ]
    return marks[-1] | {
        "epochs": marks,
        "first_batch_seconds": 0.1,
        "peak_rss_bytes": 300e6,
        "peak_mapped_bytes": 1e6,
        "mean": mean,
        "deviation": 1.0,
    }


def a_row(name, label, *, workers=2, ours=False, resize="antialiased", **run):
    found = report.figures_of(a_run(**run))
    return {
        "name": name,
        "label": label,
        "ours": ours,
        "resize": resize,
        "bytes_per_image": 2e6,
        "workers": workers,
        "median": report.middle([found]),
        "runs": [found],
    }


def a_case():
    rows = [
        a_row("dataloader-pillow", "DataLoader + Pillow", cpu=80),
        a_row("ffcv-raw", "FFCV, raw <fast>", cpu=5, start=10, resize="area averages"),
        a_row("headrace-fast", "Headrace, hri:fast", cpu=4, ours=True),
        a_row("headrace-fast", "Headrace, hri:fast", cpu=4.4, ours=True, workers=1),
    ]
    facts = {
        "name": "photos-224",
        "title": "photographs",
        "crop": "random-resized",
        "size": 224,
        "batch_size": 32,
        "epochs": 2,
        "images": 100,
    }
    return facts | {"rows": rows}


def a_document():
    return {
        "benchmark": "loaders",
        "command": "python benchmarks/loaders.py data",
        "machine": {"cpu": "a CPU", "cores": 2, "python": "CPython 3"},
        "headrace": {"commit": "abc", "target": "scalar"},
        "rounds": 3,
        "libraries": {"dali": {"torch": "2"}, "ffcv": {"torch": "2", "ffcv": "1"}},
        "cases": [a_case()],
    }


def test_crops_are_distinct_and_of_one_size(photographs):
    originals = sources.photos(photographs)
    crops = list(sources.crops(originals, 12))

    assert len(originals) == 2, "the low one holds no crop"
    assert {crop.shape for crop in crops} == {(1024, 2048, 3)}
    assert len({crop.tobytes() for crop in crops}) == 12


def test_a_folder_without_photographs_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"must hold photographs of at least 2048x1024; found none"):
        sources.photos(tmp_path)


def test_a_store_that_was_not_finished_is_not_there(tmp_path):
    def fail(dest):
        dest.mkdir()
        (dest / "half").write_text("half")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        stores._complete(tmp_path / "store", fail)
    assert not (tmp_path / "store").exists()

    stores._complete(tmp_path / "store", lambda dest: dest.mkdir())
    assert list((tmp_path / "store").iterdir()) == [], "nothing is left of the first attempt"


def test_figures_are_over_all_and_over_later_epochs():
    found = report.figures_of(a_run(cpu=5, start=10))

    assert found["cpu_ms"] == pytest.approx(1000 * 11 / 200)
    assert found["later_cpu_ms"] == pytest.approx(5)
    assert report.figures_of(a_run(cpu=5, epochs=1))["later_cpu_ms"] is None


def test_the_median_of_rounds_counts():
    runs = [report.figures_of(a_run(cpu=cpu)) for cpu in (9, 5, 6)]

    assert report.middle(runs)["cpu_ms"] == pytest.approx(6)


def test_table_compares_with_ours_and_says_how_resizing_differs():
    table = report.case_table(a_case(), 2)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}

    assert table.title == "photographs: RandomResizedCrop(224), 100 images, 2 workers on 2 cores"
    assert rows["DataLoader + Pillow"]["x ours"] == "20.0x"
    assert rows["FFCV, raw <fast>"]["x ours"] == "1.25x", "the start does not count in the ratio"
    assert "except FFCV, raw <fast>: area averages." in " ".join(table.notes)
    assert table.bold == {"Headrace, hri:fast"}


def test_pixels_that_differ_from_the_others_are_noted():
    rows = [a_row(str(n), f"loader {n}", cpu=4, mean=0.1) for n in range(3)]
    assert report.unlike(rows) == []

    rows.append(a_row("odd", "the odd one", cpu=4, mean=0.9))
    assert report.unlike(rows) == ["the odd one: the mean of its pixels is 0.90; that of the others is 0.10."]


def test_chart_is_svg_with_the_most_expensive_on_top():
    root = ET.fromstring(report.case_chart(a_case()))
    bars = [element for element in root.iter() if element.get("class") in {"peer", "ours"}]
    names = [element.text for element in root.iter() if element.get("text-anchor") == "end"]

    assert [bar.get("class") for bar in bars] == ["peer", "peer", "ours"]
    assert names == ["DataLoader + Pillow", "FFCV, raw <fast>", "Headrace, hri:fast"]
    assert float(bars[0].get("width")) / float(bars[2].get("width")) == pytest.approx(20, rel=0.01)


def test_the_summary_has_a_row_per_loader_and_a_column_per_case(tmp_path):
    results.write(tmp_path / "loaders.json", a_document())
    summary = render.render("<!-- results:loaders -->\n<!-- /results -->", tmp_path)

    assert "| CPU ms per image (images/s) | photographs |" in summary
    assert "| **Headrace, hri:fast** | **4.00 (500)** |" in summary
    assert "`python benchmarks/loaders.py data` at commit abc on a CPU" in summary


def test_a_loader_that_needs_less_cpu_is_named():
    document = a_document()
    assert report.losses(document) == []

    document["cases"][0]["rows"].append(a_row("quick", "a quick one", cpu=3))
    assert report.losses(document) == ["a quick one needs less CPU: photographs 0.75x"]


def test_unknown_names_are_errors_that_list_the_known_ones():
    with pytest.raises(ValueError, match=r"--cases must be from photos-224, .*; got poem"):
        choose_cases("poem")
    with pytest.raises(ValueError, match=r"--peers must be from dataloader-pillow, .*; got poem"):
        choose_contenders("poem")


def test_slower_variants_take_part_only_if_asked_for():
    assert [case.name for case in choose_cases("")] == ["photos-224", "jpegs-224", "small"]
    usual = {contender.name for contender in choose_contenders("")}
    assert {"tfdata", "ffcv-raw-channels-last", "ffcv-jpg-channels-last", "headrace-fast"} <= usual
    assert "grain" not in usual
    assert choose_contenders("all") == list(CONTENDERS)
    assert {contender.program for contender in choose_contenders("dali,ffcv")} == {"dali", "ffcv"}


@pytest.mark.slow
def test_a_whole_run_measures_what_was_asked(root, photographs, tmp_path):
    pytest.importorskip("torch")
    output = tmp_path / "loaders.json"
    options = ["--quick", "--workers=1", "--cases=small", "--peers=headrace-raw,headrace-fast"]
    command = [sys.executable, str(root / "benchmarks" / "loaders.py"), str(photographs.parent), *options]
    done = subprocess.run(
        [*command, f"--store={tmp_path / 'kept'}", "-o", str(output)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert "Headrace, hri:fast" in done.stdout
    document = json.loads(output.read_text())
    assert str(tmp_path) not in output.read_text()
    assert document["command"] == (
        "python benchmarks/loaders.py data --quick --peers headrace-raw,headrace-fast --cases small --workers 1"
    )
    (case,) = document["cases"]
    assert case["images"] == 4096
    assert [row["name"] for row in case["rows"]] == ["headrace-fast", "headrace-raw"]
    for row in case["rows"]:
        assert row["median"]["images_per_second"] > 0
        assert row["median"]["peak_rss_bytes"] > 1e7
    fast, raw = (row["bytes_per_image"] for row in case["rows"])
    assert fast < raw
