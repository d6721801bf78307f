# SPDX-License-Identifier: Apache-2.0
"""`headrace build`, `info`, `verify` and `extract` on the command line."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import typer
from PIL import Image
from tests.building.pictures import make_folder, make_image
from typer.testing import CliRunner

import headrace
from headrace.cli import build, extract, info, verify
from headrace.cli.shared.options import parse_size

app = typer.Typer()
for command in (build.build, info.info, verify.verify, extract.extract):
    app.command()(command)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


@pytest.fixture(scope="module")
def dataset(source, tmp_path_factory):
    dest = tmp_path_factory.mktemp("commands") / "photos.hr"
    run("build", source, dest, "--format", "png", "--workers", 1, "--shard-size", "10kB")
    return dest


def test_build_says_what_it_did(source, tmp_path):
    out, err = run("build", source, tmp_path / "a.hr", "-j", 1, "--shard-size", "10 kB", "--align", 4096)
    assert out.startswith(f"built {tmp_path / 'a.hr'}: 60 samples in ")
    assert "samples/s" in out
    assert err == ""
    assert headrace.open(tmp_path / "a.hr").manifest.align == 4096


def test_build_reports_as_json_or_not_at_all(source, tmp_path):
    out, err = run("build", source, tmp_path / "a.hr", "-j", 1, "--json")
    report = json.loads(out)
    assert (report["path"], report["samples"], report["skipped"]) == (str(tmp_path / "a.hr"), 60, [])
    assert report["fingerprint"] == headrace.open(tmp_path / "a.hr").fingerprint
    assert err == ""
    assert run("build", source, tmp_path / "b.hr", "-j", 1, "--quiet") == ("", "")
    assert "error: " in run("build", source, tmp_path / "b.hr", "--format", "gif", "-q", code=1)[1]


def test_build_names_what_is_wrong(source, tmp_path, dataset):
    assert "--force" in run("build", source, dataset, code=1)[1]
    assert "does not exist" in run("build", tmp_path / "nowhere", tmp_path / "a.hr", code=1)[1]
    assert "got 'gif'" in run("build", source, tmp_path / "a.hr", "--format", "gif", code=1)[1]
    assert "a size must" in run("build", source, tmp_path / "a.hr", "--shard-size", "big", code=2)[1]
    assert list(tmp_path.iterdir()) == []


def test_build_skips_when_asked(tmp_path):
    source = make_folder(tmp_path / "photos", 6)
    (source / "bee" / "0001.png").write_bytes(b"damaged")
    assert "'bee/0001.png'" in run("build", source, tmp_path / "a.hr", "-j", 1, code=1)[1]
    out, err = run("build", source, tmp_path / "b.hr", "-j", 1, "--on-error", "skip")
    assert "5 samples" in out
    assert "skipped bee/0001.png: field 'image'" in err
    assert "skipped 1 sample in total" in err


def test_build_reads_a_plan(source, tmp_path):
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": [{"format": "raw", "share": 1.0}]}}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    run("build", source, tmp_path / "a.hr", "-j", 1, "--plan", tmp_path / "plan.json")
    assert headrace.open(tmp_path / "a.hr").formats == {"image": {"raw": 60}}


@pytest.mark.parametrize(
    ("text", "size"),
    [("5", 5), ("256MiB", 256 << 20), ("1 GB", 10**9), ("1.5k", 1500), ("2KiB", 2048), ("64mb", 64 * 10**6)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


def test_info(dataset):
    out, _ = run("info", dataset, "--rows", 2)
    assert out.startswith(f"{dataset}: 60 samples, ")
    for line in (
        "field    image: image (60 png)",
        "field    label: int64",
        "classes  3: ant, bee, cow",
        "  1  ant/0003.png: ",
    ):
        assert line in out
    tree = json.loads(run("info", dataset, "--json")[0])
    assert (tree["samples"], tree["formats"], len(tree["first"])) == (60, {"image": {"png": 60}}, 5)
    assert "must be a dataset" in run("info", dataset.parent, code=1)[1]


def test_verify(dataset, tmp_path):
    assert "is intact: 60 samples" in run("verify", dataset)[0]
    assert run("verify", dataset, "-q") == ("", "")
    report = json.loads(run("verify", dataset, "--json")[0])
    assert (report["ok"], report["samples"], report["problems"]) == (True, 60, [])
    copy = shutil.copytree(dataset, tmp_path / "copy.hr")
    shard = copy / "shards" / "000003.hrs"
    content = bytearray(shard.read_bytes())
    content[10] ^= 1
    shard.write_bytes(content)
    problems = json.loads(run("verify", copy, "--json", code=1)[0])["problems"]
    assert [(problem["file"], problem["offset"]) for problem in problems] == [("shards/000003.hrs", 0)]
    err = run("verify", copy, "-j", 1, code=1)[1]
    assert "damaged sample '" in err
    assert "shards/000003.hrs, offset 0" in err
    assert "1 problem in" in err
    assert "there is no dataset" in run("verify", tmp_path / "nowhere", code=1)[1]


def test_extract(dataset, tmp_path):
    out, _ = run("extract", dataset, tmp_path / "files")
    assert "extracted 60 images" in out
    for number in range(60):
        image = Image.open(tmp_path / "files" / ("ant", "bee", "cow")[number % 3] / f"{number:04d}.png")
        np.testing.assert_array_equal(np.asarray(image), make_image(number))
    out, _ = run("extract", dataset, tmp_path / "some", "--start", 58, "--count", 5, "--json")
    assert json.loads(out)["files"] == 2
    assert len(list((tmp_path / "some").rglob("*.png"))) == 2
    assert "must be an image or mask field" in run("extract", dataset, tmp_path / "x", "--field", "label", code=1)[1]
    assert "not as raw" in run("extract", dataset, tmp_path / "x", "--format", "raw", code=1)[1]


def test_extract_stays_below_its_folder(tmp_path):
    keys = [
        "../../evil.png",
        "/etc/evil",
        "..\\..\\evil",
        "C:\\evil",
        "a/../../b",
        "",
        "con.png",
        "same",
        "same",
        "x" * 900,
        "\n",
    ]
    mask = np.zeros((3, 3), np.uint8)
    fields = {"image": "image", "mask": "mask"}
    with headrace.Writer(tmp_path / "a.hr", fields=fields, format="png", workers=1) as writer:
        for key in keys:
            writer.write({"image": make_image(1), "mask": mask}, key=key or ".")
    out = tmp_path / "deep" / "out"
    run("extract", tmp_path / "a.hr", out)
    files = [path for path in tmp_path.rglob("*.png") if path.is_file()]
    assert len(files) == 2 * len(keys)
    assert all(path.is_relative_to(out / "image") or path.is_relative_to(out / "mask") for path in files)
