# SPDX-License-Identifier: Apache-2.0
"""The benchmark of accelerators, as far as it goes without one: it says so, verifies, and measures nothing wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks._gpu import measure, peers, pictures, verify  # noqa: E402
from PIL import Image  # noqa: E402

from benchmarks import gpu  # noqa: E402
from headrace.kernels import backend  # noqa: E402


@pytest.fixture(autouse=True)
def _plain_pytorch(monkeypatch):
    monkeypatch.setattr(backend, "interprets", lambda: False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator here")
def test_without_an_accelerator_it_says_so(root):
    ran = subprocess.run([sys.executable, root / "benchmarks" / "gpu.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == gpu.NO_DEVICE == 2
    assert "no accelerator" in ran.stdout
    assert "--device cpu" in ran.stdout


def test_on_the_cpu_it_verifies(tmp_path, capsys):
    gpu.main(device="cpu", images=3, output=tmp_path / "gpu.json")
    told = capsys.readouterr().out
    assert told.count("verified: ") == 6
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["benchmark"] == "gpu"
    assert len(document["verified"]) == 6
    assert "rows" not in document


def test_images_of_a_folder_are_taken(tmp_path):
    for number, shape in enumerate([(9, 7, 3), (9, 7), (8, 8, 3), (6, 5, 3)]):
        Image.fromarray(np.full(shape, number, np.uint8)).save(tmp_path / f"{number}.png")
    assert [picture.shape for picture in pictures.from_folder(tmp_path, 2)] == [(9, 7, 3), (8, 8, 3)]


def test_a_difference_ends_it_before_anything_is_measured(monkeypatch, capsys):
    decode = verify.kernels.decode_batch

    def wrong(*args, **options):
        images = decode(*args, **options)
        images[0].view(-1)[0] += 1
        return images

    monkeypatch.setattr(verify.kernels, "decode_batch", wrong)
    with pytest.raises(gpu.typer.Exit) as ended:
        gpu.main(device="cpu", images=2)
    assert ended.value.exit_code == gpu.FOUND_WRONG
    assert "WRONG: hri:fast: the device's pixels are not the CPU's" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["png", "jpeg", "tiff-deflate"])
def test_peers_are_given_the_same_pictures(form):
    [picture] = pictures.made_here(1, 40, 60)
    encoded = peers.encode(picture, form)
    assert peers.n_bytes(encoded) == len(encoded)
    found = np.asarray(Image.open(io.BytesIO(encoded)))
    assert found.shape == picture.shape
    assert np.array_equal(found, picture) == (form in peers.LOSSLESS)


def test_peers_that_are_not_installed_are_told_of(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    told = []
    assert list(peers.calls(pictures.made_here(1, 8, 8), 1, told.append)) == []
    assert len(told) == 7
    assert all("left out" in line for line in told)


def test_a_peer_that_is_installed_is_called(monkeypatch):
    """A stand-in for nvImageCodec that decodes PNG and nothing else."""

    class Decoder:
        def decode(self, datas):
            return [data if data.startswith(b"\x89PNG") else None for data in datas]

    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    stand_in = type(sys)("nvidia.nvimgcodec")
    stand_in.Decoder = Decoder
    monkeypatch.setattr(peers, "_htj2k", lambda _: b"htj2k")
    monkeypatch.setitem(sys.modules, "nvidia", type(sys)("nvidia"))
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", stand_in)
    told = []
    [(name, form, n_bytes, call)] = peers.calls(pictures.made_here(2, 8, 8), 1, told.append)
    assert (name, form) == ("nvImageCodec", "png")
    assert n_bytes == sum(map(len, call()))
    assert sum("no decoder for it" in line for line in told) == 3


def test_a_row_has_the_rates():
    made = measure.row("ours", "hri:fast", pictures.made_here(2, 10, 10), 300, 0.5, ending="uint8")
    assert made["images_per_second"] == 4
    assert made["pixel_gigabytes_per_second"] == pytest.approx(1.2e-6)
    assert made["of_raw"] == 0.5
    decoders, loaders = gpu.tables([made], [{"loader": "decode='cpu'", "format": "hri:fast", "images_per_second": 7}])
    assert "| ours, hri:fast, uint8 |" in decoders.markdown()
    assert "| decode='cpu', hri:fast | 7.00 |" in loaders.markdown()
