# SPDX-License-Identifier: Apache-2.0
"""What verbs print, and the code that they exit with.

File names, keys, metadata and error messages that quote them are written by others. They are printed through `say`,
`fail` and `cell` only, which escape everything that a terminal or Rich would interpret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from headrace.errors import HeadraceError
from headrace.terminal import printable

if TYPE_CHECKING:
    from rich.text import Text

FAILED = 1
INTERRUPTED = 130
_LINE_SECONDS = 10.0


def say(line: object, *, err: bool = False) -> None:
    """Print one line; characters that a terminal would interpret are escaped."""
    typer.echo(printable(line), err=err)


def fail(error: BaseException) -> None:
    """Print an error on standard error."""
    message: Any = error.args[0] if isinstance(error, KeyError) and error.args else error
    say(f"error: {message}", err=True)


@contextmanager
def exit_on_error(interrupted: str = "interrupted") -> Iterator[None]:
    """Report errors of Headrace and of the system and exit with code 1; on Ctrl-C, print a line and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        say(interrupted, err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (HeadraceError, OSError, KeyError, ValueError) as error:
        fail(error)
        raise typer.Exit(FAILED) from None


@contextmanager
def shown_progress(*, quiet: bool, time_left: bool = False) -> Iterator[Callable[..., None]]:
    """Show progress on standard error; yield `update(completed=…, total=…, description=…)`.

    It is a bar in a terminal, and elsewhere a line every 10 seconds.
    """
    from rich import console, progress  # noqa: PLC0415 - slow to import

    terminal = console.Console(stderr=True)
    if quiet or not terminal.is_terminal:
        yield _ignore if quiet else _line_printer()
        return
    columns: list[progress.ProgressColumn] = [progress.BarColumn(), progress.MofNCompleteColumn()]
    columns += [progress.TimeRemainingColumn()] if time_left else []
    columns += [progress.TextColumn("{task.description}", markup=False)]
    with progress.Progress(*columns, console=terminal, transient=True) as bar:
        yield partial(bar.update, bar.add_task("", total=None))


def _ignore(**_: object) -> None:
    """Show nothing."""


def _line_printer() -> Callable[..., None]:
    last = time.monotonic()

    def update(*, completed: int = 0, total: int | None = None, description: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            say(f"{completed} of {total or '?'}, {description}", err=True)

    return update


def cell(text: object) -> Text:
    """Return text for a Rich table or progress bar, which would read `[...]` in a plain string as markup."""
    from rich.text import Text  # noqa: PLC0415 - slow to import

    return Text(printable(text))


def counted(n: int, thing: str) -> str:
    """Return `1 sample` or `2 samples`."""
    return f"{n} {thing}{'' if n == 1 else 's'}"
