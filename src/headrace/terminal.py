# SPDX-License-Identifier: Apache-2.0
"""Make text from files safe to print on a terminal.

File names, keys, class names and metadata come from whoever made the data. Escape sequences in them could move the
cursor, change the title of the terminal or hide lines.
"""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Return `str(text)` on one line with every invisible character escaped, such as `\x1b` or `\n`.

    These are control and format characters (also those that reverse the direction of text), line separators, lone
    surrogates, and spaces other than the plain one.
    """
    found = str(text)
    return found if found.isprintable() else "".join(map(_escape, found))


def _escape(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
