# SPDX-License-Identifier: Apache-2.0
"""What is made of the system's books and of several measurements; how fast this machine is says nothing here."""

from __future__ import annotations

import pytest

from headrace.planning import _disturbance
from headrace.planning._disturbance import Books, busy_seconds, settled


def test_others_are_what_the_cores_did_and_we_did_not():
    before = Books(clock=10.0, busy=100.0, own=50.0, cores=2)
    assert Books(clock=11.0, busy=101.5, own=51.0, cores=2).others_since(before) == pytest.approx(0.25)
    assert Books(clock=11.0, busy=100.9, own=51.0, cores=2).others_since(before) == 0.0
    assert Books(clock=11.0, busy=None, own=51.0, cores=2).others_since(before) == 0.0


def test_idle_and_waiting_cores_are_not_busy(monkeypatch, tmp_path):
    monkeypatch.setattr(_disturbance.os, "sysconf", lambda _: 100)
    books = tmp_path / "stat"
    books.write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 7000 300 1 2 47 0 0\ncpu1 5 5 5 5 5 5 5 5 0 0\nintr 1 2\n"
    )
    assert busy_seconds({0}, books) == pytest.approx(2.0)
    assert busy_seconds({0, 1}, books) == pytest.approx(2.3)
    assert busy_seconds({0}, tmp_path / "none") is None


def test_the_books_of_this_machine_can_be_read():
    before = Books.now()
    assert before.cores >= 1
    assert Books.now().others_since(before) >= 0.0


@pytest.mark.parametrize(
    ("seconds", "agree"),
    [
        ([1.0, 1.03, 1.02, 1.7], True),
        ([1.0, 1.5, 1.02, 1.7], False),
        ([1.0, 1.0], False),
        ([], False),
    ],
)
def test_measurements_have_settled_when_the_best_three_agree(seconds, agree):
    assert settled(seconds) is agree
