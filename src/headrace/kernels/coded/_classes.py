# SPDX-License-Identifier: Apache-2.0
# Triton compiles these functions: only its own annotations are allowed, and constants are in capitals.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="import, no-untyped-call, no-untyped-def, untyped-decorator"
"""The classes of coded blocks as arithmetic instead of tables (spec/image.md §6.5): what one says of its samples."""

from __future__ import annotations

import triton
import triton.language as tl

ZERO = tl.constexpr(0)
PAIRS = tl.constexpr(1)
PLAIN = tl.constexpr(2)
TAIL = tl.constexpr(3)
HALF = tl.constexpr(4)
DOUBLE = tl.constexpr(5)
AS_IS = tl.constexpr(6)
ESCAPE = tl.constexpr(12)  # with n = 16, numbers from here on are escapes


@triton.jit
def code_of(kind, n):
    """The first six classes are the six codes; then come plain and half by turns, some plain ones, and raw."""
    later = tl.where(kind & 1 == 0, PLAIN, HALF)
    later = tl.where((n == 8) & (kind >= 12), PLAIN, later)
    later = tl.where(kind == tl.where(n == 8, 15, 31), AS_IS, later)
    return tl.where(kind < 6, kind, later)


@triton.jit
def raw_bits_of(kind, n):
    """The raw bits s of a sample."""
    later = (kind - 4) >> 1
    later = tl.where((n == 8) & (kind >= 12), kind - 8, later)
    later = tl.where(kind == tl.where(n == 8, 15, 31), n, later)
    return tl.where(kind < 6, 0, later)


@triton.jit
def numbers_of(kind, n):
    """The unary numbers of a block."""
    code = code_of(kind, n)
    return tl.where((code == ZERO) | (code == AS_IS), 0, tl.where(code == PAIRS, 32, 64))


@triton.jit
def extra_bits_of(q, code):
    """The extra bits that a number reads."""
    half = tl.where(q == 0, 1, 0)
    double = tl.where(q < 2, 1, 0)
    tail = tl.where((q == 1) | (q == 2), 1, 0)
    pairs = tl.where(q > 0, 1, 0) + tl.where(q > 1, 1, 0) + tl.where(q > 3, 1, 0) + tl.where(q > 7, 1, 0)
    found = tl.where(code == HALF, half, tl.where(code == DOUBLE, double, tl.where(code == TAIL, tail, 0)))
    return tl.where(code == PAIRS, pairs, found)


@triton.jit
def escapes_of(q, code, n):
    """1 for a number that stands for an escape."""
    return tl.where((n == 16) & (q >= ESCAPE) & (code >= PLAIN) & (code <= DOUBLE), 1, 0)


@triton.jit
def high_of(q, extra, code, second):
    """The value above the raw bits; `second` says that the sample is the latter of a pair."""
    beyond = tl.where((code == HALF) | (code == DOUBLE), tl.where(q >= 1, 1, 0), 0)
    beyond += tl.where((code == DOUBLE) | (code == TAIL), tl.where(q >= 2, 1, 0), 0)
    beyond += tl.where(code == TAIL, tl.where(q >= 3, 1, 0), 0)
    single = q + beyond + extra
    pair = tl.where(second, q - extra, extra)
    return tl.where(code == PAIRS, pair, single) & 255
