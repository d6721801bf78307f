# SPDX-License-Identifier: Apache-2.0
"""The pages show the committed results, and the README's example runs."""

import re

import numpy as np
import pytest
from PIL import Image

from benchmarks import render, results


def test_generated_files_are_current(root):
    """If this fails, run `python benchmarks/render.py`."""
    for name, text in render.generated(results.FOLDER).items():
        assert (root / name).read_text(encoding="utf-8") == text, name


def test_every_result_is_shown_and_names_its_command_machine_and_commit(root):
    for path in results.FOLDER.glob("*.json"):
        document = results.read(path)
        page = root / "docs" / ("concepts/gpu.md" if path.stem == "kernels" else f"benchmarks/{path.stem}.md")
        text = page.read_text(encoding="utf-8")
        assert document["command"] in text, path
        assert (document.get("commit") or document["headrace"]["commit"]) in text, path


def test_the_page_has_at_most_600_words_three_charts_and_three_tables(root):
    text = re.sub(r"<!--.*?-->", "", (root / "docs" / "benchmarks.md").read_text(encoding="utf-8"))

    assert len([word for word in text.replace("|", " ").split() if re.search(r"\w", word)]) <= 600
    assert text.count("![") == 3
    assert len(re.findall(r"^\|---", text, re.MULTILINE)) == 3


@pytest.mark.parametrize("page", render.PAGES)
def test_page_is_current(root, page):
    """If this fails, run `python benchmarks/render.py`."""
    text = (root / page).read_text(encoding="utf-8")

    assert "<!-- results:" in text
    assert render.render(text, results.FOLDER) == text


def test_rendering_replaces_only_what_stands_between_the_markers():
    text = "before\n<!-- results:codec -->\nold\n<!-- /results -->\nafter\n"
    rendered = render.render(text, results.FOLDER)

    assert rendered.startswith("before\n<!-- results:codec -->\n| set |")
    assert rendered.endswith("\n<!-- /results -->\nafter\n")
    assert "\nold\n" not in rendered
    assert render.render(rendered, results.FOLDER) == rendered


def test_an_unknown_block_is_an_error():
    with pytest.raises(ValueError, match=r"must be one of codec, .*; got poem"):
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
