# SPDX-License-Identifier: Apache-2.0
"""Text from files, safe to show on a terminal.

File names, keys, class names, metadata and the messages that quote them come from whoever made the data. Written to a
terminal as they are, escape sequences in them move the cursor, change its title or hide lines.
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: object) -> str:
    r"""Return `str(text)` on one line, with every character that cannot be seen escaped, such as `\x1b` or `\n`.

    Escaped are control and format characters, also those that reverse the direction of text, line separators, halves of
    surrogate pairs, and spaces other than the plain one.
    """
    found = str(text)
    return found if found.isprintable() else "".join(map(_escape, found))


def _escape(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
