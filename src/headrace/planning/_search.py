# SPDX-License-Identifier: Apache-2.0
"""The search for the best mix: minimize the busiest resource's time per sample. A linear program, solved by HiGHS.

With the share x_f of each format f, and t the time per sample:

    minimize t   subject to   Σ x_f·seconds_f,r ≤ t for storage and cores,   trainer ≤ t,   Σ x_f = 1,
                              Σ x_f·stored_f ≤ budget

An optimum has at most as many formats as there are bottlenecks: one or two. Of equally fast mixes the one with the
fewest formats is taken, then the one with the fewest bytes.

A mix that is exactly as fast as the trainer lets it wait as soon as anything is slower than measured. So storage and
cores must be faster than the trainer by `MARGIN`. Where they cannot be, the margin does not change which mix is best.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import MissingExtra
from headrace.planning._model import Cost

MARGIN = 0.10
MIN_SHARE = 0.02
"""Smaller shares are not worth a format."""
MIN_GAIN = 0.03
"""The gain that another format must bring: less is within the error of a prediction."""
DOUBLING_GAIN = 1.10
"""How many times faster a dataset must be for each doubling of its size, if there is no disk budget."""

_TOLERANCE = 1e-9
_DECIMALS = 4
"""Decimals of a share."""


@dataclass(frozen=True, slots=True)
class MixProblem:
    """The numbers of the linear program."""

    costs: tuple[Cost, ...]
    seconds: npt.NDArray[np.float64]  # [formats, 2]: storage and cores
    trainer: float
    """The trainer's seconds per sample."""
    max_bytes: float = math.inf
    """Mean stored bytes per sample, at most."""

    @property
    def stored(self) -> npt.NDArray[np.float64]:
        return np.array([cost.stored_bytes for cost in self.costs])

    def subset(self, rows: Sequence[int]) -> MixProblem:
        return replace(self, costs=tuple(self.costs[k] for k in rows), seconds=self.seconds[list(rows)])

    def time(self, shares: npt.NDArray[np.float64]) -> float:
        """Return what is minimized: the seconds per sample, with the margin on storage and cores."""
        return max((1 + MARGIN) * float((shares @ self.seconds).max()), self.trainer)


@dataclass(frozen=True, slots=True)
class FormatMixture:
    """Shares of some formats, and the time per sample."""

    costs: tuple[Cost, ...]
    shares: tuple[float, ...]
    time: float

    @property
    def stored_bytes(self) -> float:
        return math.fsum(x * cost.stored_bytes for x, cost in zip(self.shares, self.costs, strict=True))


def fastest_mix(problem: MixProblem) -> FormatMixture | None:
    """Return the fastest mix; None if nothing fits the disk."""
    every = _solve(problem)
    if every is None:
        return None
    kept = [k for k, share in enumerate(every) if share >= MIN_SHARE]
    candidates: list[list[int]] = [[k] for k in range(len(problem.costs))]
    if len(kept) > 2:
        candidates += [list(pair) for pair in itertools.combinations(kept, 2)]
    if len(kept) > 1:
        candidates.append(kept)
    best: FormatMixture | None = None
    for _, same_count in itertools.groupby(candidates, key=len):
        found = [mixture for rows in same_count if (mixture := _mixture(problem.subset(rows))) is not None]
        if found:
            least = min(each.time for each in found)
            equal = [each for each in found if each.time <= least * (1 + _TOLERANCE)]
            smallest = min(equal, key=lambda each: (each.stored_bytes, [cost.format for cost in each.costs]))
            if best is None or smallest.time < best.time * (1 - MIN_GAIN):
                best = smallest
    return best


def thriftiest_mix(problem: MixProblem) -> FormatMixture | None:
    """Return the best mix whose speed is worth its size, as defined by `worth_its_size`."""
    fastest = fastest_mix(problem)
    if fastest is None or fastest.stored_bytes <= problem.stored.min():
        return fastest
    limits = sorted({size for size in problem.stored.tolist() if size < problem.max_bytes})
    limited = [fastest_mix(replace(problem, max_bytes=limit)) for limit in limits]
    found = [each for each in (*limited, fastest) if each is not None]
    chosen = worth_its_size([(1 / each.time if each.time > 0 else math.inf, each.stored_bytes) for each in found])
    return None if chosen is None else found[chosen]


def worth_its_size(choices: Sequence[tuple[float, float]]) -> int | None:
    """Return the position of the best (rate, bytes): twice the bytes must give `DOUBLING_GAIN` times the rate.

    So five times the disk is taken for 1.25 times the speed, and not for 3 %. None if there is no choice.
    """

    def merit(position: int) -> tuple[float, float]:
        rate, n_bytes = choices[position]
        size = max(n_bytes, 1.0)
        if not 0 < rate < math.inf:
            return rate, -size
        return math.log2(rate) - math.log2(DOUBLING_GAIN) * math.log2(size), -size

    return max(range(len(choices)), key=merit, default=None)


def _mixture(problem: MixProblem) -> FormatMixture | None:
    """Return the best mix in which each of these formats has at least `MIN_SHARE`."""
    if len(problem.costs) == 1:
        if problem.stored[0] > problem.max_bytes * (1 + _TOLERANCE):
            return None
        return FormatMixture(problem.costs, (1.0,), problem.time(np.ones(1)))
    shares = _solve(problem, min_share=MIN_SHARE)
    if shares is None:
        return None
    rounded = _rounded(shares, problem.stored)
    return FormatMixture(problem.costs, tuple(map(float, rounded)), problem.time(rounded))


def _rounded(shares: npt.NDArray[np.float64], stored: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Round shares down; the smallest format gets the rest, so that a disk budget still holds."""
    cut = np.floor(shares * 10**_DECIMALS + 1e-6) / 10**_DECIMALS
    smallest = int(np.argmin(stored))
    cut[smallest] = round(1.0 - float(np.delete(cut, smallest).sum()), _DECIMALS)
    return np.asarray(np.round(cut, _DECIMALS))


def _solve(problem: MixProblem, *, min_share: float = 0.0) -> npt.NDArray[np.float64] | None:
    """Return the shares of the fastest mix, and of equally fast ones the smallest; None if none fits the disk."""
    n = len(problem.costs)
    # The solver's tolerances are absolute: times are relative to the best single format, bytes to the smallest.
    scale = min(problem.time(row) for row in np.eye(n)) or 1.0
    unit = float(problem.stored.min()) or 1.0
    rows = np.hstack([((1 + MARGIN) * problem.seconds / scale).T, -np.ones((2, 1))])
    limits = np.zeros(2)
    if math.isfinite(problem.max_bytes):
        rows = np.vstack([rows, [*(problem.stored / unit), 0.0]])
        limits = np.append(limits, problem.max_bytes / unit)
    bounds: list[tuple[float, float | None]] = [(min_share, 1.0)] * n + [(problem.trainer / scale, None)]
    fastest = _minimize([0.0] * n + [1.0], rows, limits, bounds)
    if fastest is None:
        return None
    bounds[-1] = (0.0, float(fastest[-1]) * (1 + _TOLERANCE) + _TOLERANCE)
    smallest = _minimize([*(problem.stored / unit), 0.0], rows, limits, bounds)
    return (fastest if smallest is None else smallest)[:n]


def find_solver() -> Callable[..., Any]:
    """Return SciPy's solver of linear programs; raise MissingExtra if it is not installed."""
    try:
        from scipy.optimize import linprog  # type: ignore[import-untyped] # noqa: PLC0415 - an extra, slow to import
    except ImportError as error:
        raise MissingExtra("planning needs SciPy, which is not installed: pip install 'headrace[plan]'") from error
    found: Callable[..., Any] = linprog
    return found


def _minimize(
    objective: Sequence[float],
    rows: npt.NDArray[np.float64],
    limits: npt.NDArray[np.float64],
    bounds: Sequence[tuple[float, float | None]],
) -> npt.NDArray[np.float64] | None:
    total = np.ones((1, len(objective)))
    total[0, -1] = 0.0
    result = find_solver()(objective, A_ub=rows, b_ub=limits, A_eq=total, b_eq=[1.0], bounds=bounds, method="highs")
    if result.status == 2:  # infeasible
        return None
    if result.status != 0:
        raise RuntimeError(f"HiGHS did not solve the plan's linear program: {result.message}")
    return np.asarray(result.x, np.float64)
