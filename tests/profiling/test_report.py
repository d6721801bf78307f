# SPDX-License-Identifier: Apache-2.0
"""A report is saved and loaded, shown in a terminal and on a page, and whatever a name holds does no harm there."""

from __future__ import annotations

import builtins
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console
from tests.profiling import profiles

import headrace.profiling
from headrace.errors import MissingExtra
from headrace.profiling import Energy, Measurements, ProfiledSource, RawAndRecords, Report
from headrace.profiling.report import _html

HOSTILE = "<script>alert(1)</script>[red]\"'&\x1b[31m\x07\u202e\udcff\n--force"
SUBJECTS = {
    "full": profiles.full(),
    "partial": profiles.partial(),
    "foreign": profiles.foreign(),
    "crowded": profiles.crowded(),
    "lonely": profiles.lonely(),
    "trainer": profiles.even(),
    "balanced": profiles.even(decode=2_000.0, transform=2_000.0),
    "nothing": Measurements(machine=profiles.full().machine, source=profiles.full().source),
    "offload": replace(profiles.even(decode=100.0), source=ProfiledSource(kind="dataset", name="photos.hr")),
    "hostile": profiles.full(HOSTILE),
    "half a pair": replace(profiles.even(), raw_and_records=RawAndRecords(images=3, records_cold=10.0)),
    "counted energy": replace(profiles.even(), energy=Energy(joules=0.2, estimated=False, meter="rapl")),
}
CSS = (Path(headrace.profiling.__file__).parent / "report" / "templates" / "report.css").read_text()


def shown(report: Report, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    report.show(console)
    return console.file.getvalue()


@pytest.mark.parametrize("measurements", SUBJECTS.values(), ids=SUBJECTS)
def test_a_report_is_saved_and_loaded(tmp_path, measurements):
    report = Report(measurements)

    page = report.save(tmp_path / "new" / "report")

    assert page == tmp_path / "new" / "report" / "index.html"
    assert {path.name for path in page.parent.iterdir()} == {"index.html", "report.json"}
    assert Report.load(page.parent) == Report.load(page.with_name("report.json")) == report
    assert json.loads(page.with_name("report.json").read_text())["verdict"]["sentence"] == report.verdict.sentence


def test_saving_again_replaces_what_was_there(tmp_path):
    Report(profiles.full()).save(tmp_path)
    Report(profiles.even()).save(tmp_path)

    assert Report.load(tmp_path).measurements == profiles.even()


@pytest.fixture
def no_jinja(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **options):
        if name == "jinja2":
            raise ImportError("no jinja2")
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    _html.find_template.cache_clear()


@pytest.mark.usefixtures("no_jinja")
def test_without_the_extra_the_figures_are_saved_all_the_same(tmp_path):
    with pytest.raises(MissingExtra, match=r"headrace\[report\]"):
        Report(profiles.full()).save(tmp_path)

    assert Report.load(tmp_path).measurements == profiles.full()
    assert not (tmp_path / "index.html").exists()


VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Tags, and what they refer to; complains of a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("measurements", SUBJECTS.values(), ids=SUBJECTS)
def test_a_page_is_whole_and_refers_to_nothing_outside(measurements):
    page = Report(measurements).to_html()
    outline = Outline()
    outline.feed(page)

    assert outline.open == []
    assert not outline.tags & {"script", "img", "iframe", "object", "form", "base"}
    assert outline.references == ["data:,"]
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "None" not in " ".join(outline.words)


def test_foreign_words_are_shown_and_not_obeyed():
    page, text = Report(SUBJECTS["hostile"]).to_html(), shown(Report(SUBJECTS["hostile"]), width=400)

    assert "&lt;script&gt;alert(1)&lt;/script&gt;[red]" in page
    assert "<script>alert(1)</script>[red]" in text
    for letter in ("\x1b", "\x07", "\u202e", "\udcff"):
        assert letter not in page
        assert letter not in re.sub(r"\x1b\[[0-9;]*m", "", text)
    page.encode()
    text.encode()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("measurements", SUBJECTS.values(), ids=SUBJECTS)
def test_a_terminal_of_any_width_shows_the_verdict(measurements, width):
    report = Report(measurements)

    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown(report, width)).split())

    assert report.verdict.sentence in words


def test_a_terminal_shows_commands_that_can_be_copied():
    report = Report(profiles.full("/a/folder/with/a/name/that/is/longer/than/the/terminal/is/wide"))

    lines = [line.strip() for line in shown(report, width=60).splitlines()]

    for remedy in report.verdict.remedies:
        assert set(remedy.command.splitlines()) <= set(lines)


def test_an_estimate_is_marked_as_one():
    estimated, counted = Report(profiles.full()), Report(SUBJECTS["counted energy"])

    assert "an <b>estimate</b>" in estimated.to_html()
    assert "estimate: 7 W per core" in shown(estimated)
    assert "estimate" not in counted.to_html() + shown(counted)
    assert "rapl" in counted.to_html()


def test_a_notebook_shows_the_page_in_a_frame_that_runs_nothing():
    frame = Report(SUBJECTS["hostile"])._repr_html_()
    outline = Outline()
    outline.feed(frame)

    assert outline.tags == {"iframe"}
    assert " sandbox " in frame


@pytest.mark.usefixtures("no_jinja")
def test_a_notebook_without_the_extra_shows_the_sentence():
    report = Report(profiles.full())

    assert report._repr_html_() is None
    assert report.verdict.sentence in repr(report)


def test_the_report_in_short_is_the_verdict():
    report = Report(profiles.full())

    assert str(report) == report.verdict.sentence


def schemes() -> list[dict[str, str]]:
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block)) for block in CSS.split("@media", 2)[:2])
    return [light, {**light, **dark}]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", schemes(), ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(colours):
    """The contrast that WCAG 2 asks for at level AA: 4.5 for words, 3 for what is drawn."""
    pairs = [(name, "card") for name in ("ink", "muted", "warm", "good", "water")]
    pairs += [("muted", "page"), ("ink", "page"), ("ink", "code")]
    for words, ground in pairs:
        assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    for number in range(6):
        assert contrast(colours[f"s{number}"], colours["card"]) >= 3
