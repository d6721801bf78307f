# SPDX-License-Identifier: Apache-2.0
"""A profile as it goes on, in the terminal: what was found, what is being measured, and for how long still.

Elsewhere, as in a log, each finding is a line. Everything goes to standard error: what comes out of the command is the
report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.profiling.report._summary import printable
from headrace.profiling.subjects._course import Progress, ProgressHook

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@contextmanager
def shown(console: Console | None = None) -> Iterator[ProgressHook]:
    """Give a hook for `profile` that shows where it is."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    screen = console or Console(stderr=True)
    if not screen.is_terminal:
        yield _lines(screen)
        return
    from rich.live import Live  # noqa: PLC0415 - slow to import

    view = _View()
    with Live(get_renderable=view.render, console=screen, refresh_per_second=8, transient=True):
        yield view.update


class _View:
    """The last thing that was told, drawn anew several times a second: time goes on while nothing is told."""

    def __init__(self) -> None:
        from rich.spinner import Spinner  # noqa: PLC0415 - slow to import

        self._now: Progress | None = None
        self._told = time.perf_counter()
        self._spinner = Spinner("dots", "looking at what there is")

    def update(self, now: Progress) -> None:
        self._now, self._told = now, time.perf_counter()

    def render(self) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 - slow to import
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        now = self._now
        if now is None:
            return self._spinner
        since = time.perf_counter() - self._told
        found = Table.grid(padding=(0, 2))
        found.add_column(style="dim")
        found.add_column()
        for line in now.found:
            name, _, value = line.partition(": ")
            found.add_row(Text(printable(name)), Text(printable(value)))
        self._spinner.update(text=Text(f"{printable(now.doing)} ({since:.0f} s)" if now.doing else "done"))
        total = max(1e-9, now.seconds + now.seconds_left)
        bar = ProgressBar(total=total, completed=min(total, now.seconds + since), width=40)
        left = Text(
            f"about {max(0.0, now.seconds_left - since):.0f} s left; Ctrl-C ends with what there is", style="dim"
        )
        ends = Table.grid(padding=(0, 2))
        ends.add_row(bar, left)
        return Group(found, self._spinner, ends)


def _lines(screen: Console) -> ProgressHook:
    told = 0

    def tell(now: Progress) -> None:
        nonlocal told
        for line in now.found[told:]:
            screen.print(printable(line), highlight=False, markup=False, soft_wrap=True)
        told = len(now.found)
        if now.doing:
            screen.print(
                f"[{now.number + 1}/{now.total}] {printable(now.doing)} …",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    return tell
