# SPDX-License-Identifier: Apache-2.0
"""Sums and ratios of measurements: one codec on one image, and one codec over a set. Pure.

Ratios compare sums: a large image counts more than a small one. The mean of the ratios of single images is kept too.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEGA = 1e6


@dataclass(frozen=True)
class Row:
    """One codec on one image; times are the best of the rounds, in seconds of CPU."""

    image: str
    codec: str
    n_pixels: int
    n_bytes: int
    decode_seconds: float
    encode_seconds: float | None  # None: the peer has no encoder
    encode_rounds: int = 0


@dataclass(frozen=True)
class Ratios:
    """Bytes and speeds relative to the reference; None where there is nothing to compare."""

    n_bytes: float | None = None
    decode: float | None = None
    encode: float | None = None


@dataclass(frozen=True)
class Total:
    """One codec over a whole set."""

    codec: str
    images: int
    n_bytes: int
    decode_mps: float  # megapixels per second
    encode_mps: float | None
    ratios: Ratios  # of the sums
    mean_ratios: Ratios  # mean of the ratios of single images


def ratios(row: Row, reference: Row | None) -> Ratios:
    """How `row` compares with the reference codec on the same image."""
    if reference is None:
        return Ratios()
    encode = None
    if row.encode_seconds is not None and reference.encode_seconds is not None:
        encode = reference.encode_seconds / row.encode_seconds
    return Ratios(row.n_bytes / reference.n_bytes, reference.decode_seconds / row.decode_seconds, encode)


def total(rows: Sequence[Row], references: Mapping[str, Row | None]) -> Total:
    """Sum up one codec's rows; `references` maps an image's name to the reference's row on it."""
    codecs = {row.codec for row in rows}
    if len(codecs) != 1:
        raise ValueError(f"rows must be of one codec; got {sorted(codecs)}")
    whole = _sum(codecs.pop(), rows)
    compared = [(row, reference) for row in rows if (reference := references[row.image]) is not None]
    of_sums, of_means = Ratios(), Ratios()
    # No ratio if only part of a set is comparable: its bytes would be of other images.
    if len(compared) == len(rows):
        of_sums = ratios(whole, _sum("reference", [reference for _, reference in compared]))
        each = [ratios(row, reference) for row, reference in compared]
        of_means = Ratios(
            _mean([one.n_bytes for one in each]),
            _mean([one.decode for one in each]),
            _mean([one.encode for one in each]),
        )
    return Total(
        codec=whole.codec,
        images=len(rows),
        n_bytes=whole.n_bytes,
        decode_mps=whole.n_pixels / whole.decode_seconds / MEGA,
        encode_mps=None if whole.encode_seconds is None else whole.n_pixels / whole.encode_seconds / MEGA,
        ratios=of_sums,
        mean_ratios=of_means,
    )


def _sum(codec: str, rows: Sequence[Row]) -> Row:
    encode = [row.encode_seconds for row in rows if row.encode_seconds is not None]
    return Row(
        image="",
        codec=codec,
        n_pixels=sum(row.n_pixels for row in rows),
        n_bytes=sum(row.n_bytes for row in rows),
        decode_seconds=sum(row.decode_seconds for row in rows),
        encode_seconds=sum(encode) if len(encode) == len(rows) else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
