# SPDX-License-Identifier: Apache-2.0
"""The progress of a profile on standard error: a live view in a terminal, one line per result elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headrace.profiling.subjects._schedule import ProfileProgress, ProgressHook
from headrace.terminal import printable


@contextmanager
def shown(console: Console | None = None) -> Iterator[ProgressHook]:
    """Yield a progress hook for `profile` that shows the progress."""
    screen = console or Console(stderr=True)
    if not screen.is_terminal:
        yield _line_printer(screen)
        return
    view = _LiveView()
    with Live(get_renderable=view.render, console=screen, refresh_per_second=8, transient=True):
        yield view.update


class _LiveView:
    """The last progress, drawn several times per second so that the clock runs on during a measurement."""

    def __init__(self) -> None:
        self._now: ProfileProgress | None = None
        self._updated = time.perf_counter()
        self._spinner = Spinner("dots", "listing images")

    def update(self, now: ProfileProgress) -> None:
        self._now, self._updated = now, time.perf_counter()

    def render(self) -> RenderableType:
        now = self._now
        if now is None:
            return self._spinner
        since = time.perf_counter() - self._updated
        found = Table.grid(padding=(0, 2))
        found.add_column(style="dim")
        found.add_column()
        for line in now.found:
            name, _, value = line.partition(": ")
            found.add_row(Text(printable(name)), Text(printable(value)))
        self._spinner.update(text=Text(f"{printable(now.doing)} ({since:.0f} s)" if now.doing else "done"))
        total = max(1e-9, now.seconds + now.seconds_left)
        bar = ProgressBar(total=total, completed=min(total, now.seconds + since), width=40)
        left = f"about {max(0.0, now.seconds_left - since):.0f} s left; Ctrl-C ends with the results so far"
        last_line = Table.grid(padding=(0, 2))
        last_line.add_row(bar, Text(left, style="dim"))
        return Group(found, self._spinner, last_line)


def _line_printer(screen: Console) -> ProgressHook:
    printed = 0

    def update(now: ProfileProgress) -> None:
        nonlocal printed
        lines = [printable(line) for line in now.found[printed:]]
        printed = len(now.found)
        if now.doing:
            lines.append(f"[{now.number + 1}/{now.total}] {printable(now.doing)} …")
        for line in lines:
            screen.print(line, highlight=False, markup=False, soft_wrap=True)

    return update
