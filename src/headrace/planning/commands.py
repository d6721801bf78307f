# SPDX-License-Identifier: Apache-2.0
"""Words of the commands that profiles and plans print: each command runs as it is printed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from itertools import count
from pathlib import Path, PurePath


def shell_word(text: str) -> str:
    r"""Quote a word for a POSIX shell; a path that begins with a dash is not taken for an option.

    What a terminal would not show as it is (control characters, bytes that are not UTF-8) is written as `$'\x1b'`,
    which bash and zsh read.
    """
    text = f"./{text}" if text.startswith("-") else text
    if text.isprintable():
        return shlex.quote(text)
    shown = "".join(_escaped(letter) for letter in text)
    return f"$'{shown}'"


def _escaped(letter: str) -> str:
    if letter.isprintable():
        return f"\\{letter}" if letter in "\\'" else letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))


def command_line(*words: str | Iterable[str]) -> str:
    """Join words and lists of options into a command.

    A word by itself is never an option, whatever it begins with; in a list what begins with a dash is, and what follows
    an option is its value.
    """
    return " ".join(shell_word(word) if isinstance(word, str) else _options_text(list(word)) for word in words if word)


def _options_text(words: list[str]) -> str:
    shown, after_option = [], False
    for word in words:
        after_option = word.startswith("-") and not after_option
        shown.append(shlex.quote(word) if after_option else shell_word(word))
    return " ".join(shown)


def usual_dataset_path(source: str, *, is_dataset: bool) -> str:
    """The path that a dataset of a source usually gets: `photos.hr` beside `photos`."""
    name = source.rstrip("/")
    if is_dataset:
        return f"{name.removesuffix('.hr')}.new.hr"
    return f"{name}.hr" if PurePath(name).name not in ("", "..") and "*" not in name else "dataset.hr"


def new_dataset_path(source: str | os.PathLike[str], *, is_dataset: bool) -> str:
    """A path at which nothing exists yet and where this process may write: beside the source, or in the current folder.

    Args:
        source: A folder, file, glob or dataset that `headrace build` can read.
        is_dataset: Whether it is a dataset already.

    """
    given = os.fspath(source)
    if PurePath(given).name in ("", "..") and Path(given).resolve().name:
        given = str(Path(given).resolve())
    wanted = Path(usual_dataset_path(given, is_dataset=is_dataset))
    if not os.access(wanted.parent, os.W_OK | os.X_OK):
        wanted = Path(wanted.name)
    stem = wanted.name.removesuffix(".hr")
    numbered = (wanted.with_name(f"{stem}-{number}.hr") for number in count(2))
    while os.path.lexists(wanted):
        wanted = next(numbered)
    return str(wanted)
