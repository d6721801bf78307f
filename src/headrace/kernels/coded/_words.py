# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import"
"""What the kernels of coded tiles leave for one another in the scratch of entries: words of int32."""

from __future__ import annotations

import triton.language as tl

from headrace.kernels import _batch

# A tile's entries: where its escapes and its extra bits begin, how many escapes there are, and a spare word;
ESCAPES_AT = tl.constexpr(0)
EXTRA_AT = tl.constexpr(1)
ESCAPES = tl.constexpr(2)
PLANES_AT = tl.constexpr(_batch.CODED_TILE_WORDS)
# for each plane where its unary section begins, its bytes, its numbers and the index of the first, then for each of up
# to four rows of blocks where its raw bits begin and the index of its first number;
PLANE_WORDS = tl.constexpr(_batch.CODED_PLANE_WORDS)
SECTION_AT = tl.constexpr(0)
SECTION_BYTES = tl.constexpr(1)
PLANE_NUMBERS = tl.constexpr(2)
PLANE_FIRST = tl.constexpr(3)
ROWS_AT = tl.constexpr(4)
# for each block its class, where its raw bits begin and which is its first number, both counted from those of its row,
# and how many extra bits (low half) and escapes (high half) its numbers ask for.
BLOCK_WORDS = tl.constexpr(_batch.CODED_BLOCK_WORDS)
CLASS = tl.constexpr(0)
RAW_AT = tl.constexpr(1)
FIRST = tl.constexpr(2)
ASKED = tl.constexpr(3)
