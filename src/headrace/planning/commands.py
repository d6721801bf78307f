# SPDX-License-Identifier: Apache-2.0
"""Commands that profiles and plans print: each runs as printed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from itertools import count
from pathlib import Path, PurePath


def shell_word(text: str) -> str:
    r"""Quote a word for a POSIX shell; a path that begins with a dash is not taken for an option.

    Characters that a terminal would not print (control characters, bytes that are not UTF-8) are written as `$'\x1b'`,
    which bash and zsh understand.
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

    A word is never read as an option, even if it begins with a dash. In a list, a word that begins with a dash is an
    option, and the next word is its value.
    """
    return " ".join(shell_word(word) if isinstance(word, str) else _options_text(list(word)) for word in words if word)


def _options_text(words: list[str]) -> str:
    shown, after_option = [], False
    for word in words:
        after_option = word.startswith("-") and not after_option
        shown.append(shlex.quote(word) if after_option else shell_word(word))
    return " ".join(shown)


def usual_dataset_path(source: str, *, is_dataset: bool) -> str:
    """Return the usual path of a dataset that is built from a source: `photos.hr` next to `photos`."""
    name = source.rstrip("/")
    if is_dataset:
        return f"{name.removesuffix('.hr')}.new.hr"
    return f"{name}.hr" if PurePath(name).name not in ("", "..") and "*" not in name else "dataset.hr"


def new_dataset_path(source: str | os.PathLike[str], *, is_dataset: bool) -> str:
    """Return a path that does not exist and can be written: next to the source, or in the current folder."""
    path = os.fspath(source)
    if PurePath(path).name in ("", "..") and Path(path).resolve().name:
        path = str(Path(path).resolve())
    wanted = Path(usual_dataset_path(path, is_dataset=is_dataset))
    if not os.access(wanted.parent, os.W_OK | os.X_OK):
        wanted = Path(wanted.name)
    stem = wanted.name.removesuffix(".hr")
    numbered = (wanted.with_name(f"{stem}-{number}.hr") for number in count(2))
    while os.path.lexists(wanted):
        wanted = next(numbered)
    return str(wanted)
