# SPDX-License-Identifier: Apache-2.0
"""The one way in which a command shows text that others wrote: file names, keys, metadata, messages that quote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from headrace.terminal import printable

if TYPE_CHECKING:
    from rich.text import Text


def say(line: object, *, err: bool = False) -> None:
    """Print one line, in which everything that could command the terminal is escaped."""
    typer.echo(printable(line), err=err)


def fail(error: BaseException) -> None:
    """Print an error as the reason why a command failed."""
    message: Any = error.args[0] if isinstance(error, KeyError) and error.args else error
    say(f"failed {message}", err=True)


def cell(text: object) -> Text:
    """Return text for a table or progress bar of Rich's, which would take `[...]` in a string for markup."""
    from rich.text import Text  # noqa: PLC0415 - slow to import

    return Text(printable(text))
