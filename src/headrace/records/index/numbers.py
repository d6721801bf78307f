# SPDX-License-Identifier: Apache-2.0
"""Sample numbers: the row of a sample, and which copy of it is meant (spec/order.md §1).

Copies of a sample have its fields, and random draws of their own. Patches of an image are copies of its sample.
"""

from __future__ import annotations

COPY_BITS = 30
"""A sample number is row + 2**30 * copy."""
MAX_COPIES = 1 << 18  # a sample number must be below 2**48
_ROW_BITS = (1 << COPY_BITS) - 1


def row_bits(n_rows: int) -> int:
    """Return the bits of a sample number that are its row. A larger dataset has no copies."""
    return _ROW_BITS if n_rows <= _ROW_BITS + 1 else -1
