# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: it shows its charts, asks nobody for anything, and fits wide and narrow windows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.profiling import browser as chromium
from tests.profiling import profiles

from headrace.profiling import Report

HOSTILE = "photos/<script>document.title='broken'</script><img src=http://example.com/x.png>\"'&\u202e\x1b[2J"
SUBJECTS = {
    "full": profiles.full(),
    "partial": profiles.partial(),
    "foreign": profiles.foreign(),
    "crowded": profiles.crowded(),
    "lonely": profiles.lonely(),
    "trainer": profiles.even(),
    "hostile": replace(profiles.full(HOSTILE), notes=(HOSTILE,)),
}
WIDTHS = (1280, 400)

# What a person could not read: text outside of the window, too small, or on top of other text of the same drawing.
LOOK = """(() => {
  const shown = [...document.querySelectorAll("svg.chart")].filter(chart => chart.getClientRects().length);
  const texts = shown.map(chart => [...chart.querySelectorAll("text")].map(text => {
    const {left, right, top, bottom} = text.getBoundingClientRect();
    const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
    const size = scale * parseFloat(getComputedStyle(text).fontSize);
    return {words: text.textContent, left, right, top, bottom, size};
  }));
  const touch = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                       && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return {
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    charts: shown.length,
    sections: [...document.querySelectorAll("section[id]")].map(section => section.id),
    outside: texts.flat().filter(text => text.left < 0 || text.right > innerWidth).map(text => text.words),
    small: texts.flat().filter(text => text.size < 11).map(text => text.words),
    touching: texts.flatMap(list => list.flatMap((a, i) => list.slice(i + 1).filter(b => touch(a, b))
                                                              .map(b => a.words + " / " + b.words))),
    scripts: document.scripts.length,
    images: document.images.length,
    title: document.title,
    heading: document.querySelector("h1").innerText,
    background: getComputedStyle(document.body).backgroundColor,
  };
})()"""


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    return {name: Report(measurements).save(folder / name) for name, measurements in SUBJECTS.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = chromium.find()
    if path is None:
        pytest.skip(f"none of {', '.join(chromium.NAMES)} is installed")
    with chromium.running(path, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_page_can_be_read_and_keeps_to_itself(browser, page_of, name, width):
    browser.open(page_of[name], width)
    seen = browser.evaluate(LOOK)

    assert seen["overflow"] <= 0
    assert (seen["outside"], seen["small"], seen["touching"]) == ([], [], [])
    assert seen["charts"] >= 1
    assert (seen["scripts"], seen["images"]) == (0, 0)
    assert seen["heading"] in seen["title"]
    assert browser.named("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
    asked = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [page_of[name].as_uri()]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_full_profile_shows_every_chart(browser, page_of, width):
    browser.open(page_of["full"], width)
    seen = browser.evaluate(LOOK)

    assert seen["sections"] == [
        "pipeline",
        "remedies",
        "stall",
        "scaling",
        "records",
        "formats",
        "energy",
        "method",
    ]
    assert seen["charts"] == 5


def test_the_page_follows_the_readers_scheme(browser, page_of):
    backgrounds = []
    for scheme in ("light", "dark"):
        browser.open(page_of["full"], WIDTHS[0], scheme=scheme)
        seen = browser.evaluate(LOOK)
        assert (seen["overflow"], seen["touching"]) == (0, [])
        backgrounds.append(seen["background"])

    assert backgrounds == ["rgb(238, 242, 244)", "rgb(12, 20, 24)"]
