# SPDX-License-Identifier: Apache-2.0
"""The pages show the committed results, and the README's example runs."""

import re

import numpy as np
import pytest
from PIL import Image

from benchmarks import render, results


@pytest.mark.parametrize("page", render.PAGES)
def test_page_is_current(root, page):
    """If this fails, run `python benchmarks/render.py`."""
    text = (root / page).read_text(encoding="utf-8")

    assert "<!-- results:" in text
    assert render.render(text, results.FOLDER) == text


def test_readme_names_command_machine_and_commit(root):
    document = results.read(results.FOLDER / "codec.json")
    text = (root / "README.md").read_text(encoding="utf-8")

    assert document["command"] in text
    assert document["machine"]["cpu"] in text
    assert document["headrace"]["commit"] in text


def test_rendering_replaces_only_what_stands_between_the_markers():
    text = "before\n<!-- results:codec -->\nold\n<!-- /results -->\nafter\n"
    rendered = render.render(text, results.FOLDER)

    assert rendered.startswith("before\n<!-- results:codec -->\n| set |")
    assert rendered.endswith("\n<!-- /results -->\nafter\n")
    assert "\nold\n" not in rendered
    assert render.render(rendered, results.FOLDER) == rendered


def test_an_unknown_block_is_an_error():
    with pytest.raises(ValueError, match=r"nothing renders results:poem: choose from codec"):
        render.render("<!-- results:poem -->\n<!-- /results -->", results.FOLDER)


def test_readme_example_runs(root, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    pixels = np.add.outer(np.arange(300), np.arange(400)).astype(np.uint8)
    Image.fromarray(np.dstack([pixels, pixels, pixels])).save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(example, "README.md", "exec"), names)

    assert names["crop"].shape == (224, 224, 3)
    assert (names["batch"] == names["image"]).all()
    assert "width=400" in capsys.readouterr().out
