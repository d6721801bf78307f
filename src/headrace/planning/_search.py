# SPDX-License-Identifier: Apache-2.0
"""The search for a mix: minimise the busiest resource's time a sample. A linear program, solved by HiGHS.

With the share x_f of each format f, and t the time a sample takes:

    minimise t   subject to   Σ x_f·load_f,r + base_r ≤ t for each resource r,   Σ x_f = 1,   Σ x_f·stored_f ≤ budget

An optimum has at most as many formats as resources bind: two, rarely three. Of equally fast mixes the one with the
fewest formats is taken, then the one with the fewest bytes.

The trainer is no resource like the others: a mix that is exactly as fast as the trainer starves it as soon as anything
is slower than measured. So what prepares batches is asked to be faster than the trainer by `MARGIN`. Where that cannot
be had the margin does not change which mix is the best.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import MissingExtra
from headrace.planning._cost import Cost

MARGIN = 0.10
MIN_SHARE = 0.02
"""Smaller shares are not worth a format."""
WORTH = 0.03
"""What another format must bring: less would drown in the errors of a prediction."""
DOUBLING = 1.10
"""How many times faster a dataset must be for each doubling of its size. Without a disk budget only."""

_SAME = 1e-9
_PLACES = 4
"""Decimals of a share: a hundredth of a per cent."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The numbers of the linear program: a row a format, a column a resource, the trainer's last."""

    costs: tuple[Cost, ...]
    loads: npt.NDArray[np.float64]  # [formats, resources]
    base: float
    """The trainer's seconds a sample, whatever the format."""
    most_bytes: float
    """A sample, on the average."""

    @property
    def stored(self) -> npt.NDArray[np.float64]:
        return np.array([cost.stored_bytes for cost in self.costs])

    def subset(self, rows: Sequence[int]) -> Problem:
        return Problem(tuple(self.costs[k] for k in rows), self.loads[list(rows)], self.base, self.most_bytes)

    def time(self, shares: npt.NDArray[np.float64]) -> float:
        """What is minimised: the time of a sample, with the margin on all but the trainer."""
        busy = shares @ self.loads
        return float(max((1 + MARGIN) * busy[:-1].max(), busy[-1] + self.base))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of some formats, and the time that they take."""

    costs: tuple[Cost, ...]
    shares: tuple[float, ...]
    time: float


def search(problem: Problem) -> Mixture | None:
    """Find the best mix; None if nothing fits the disk."""
    best: Mixture | None = None
    for rows in _one_place_each(problem.costs):
        found = _search_places(problem.subset(rows))
        if found is not None and (best is None or found.time < best.time * (1 - _SAME)):
            best = found
    return best


def search_thrifty(problem: Problem) -> Mixture | None:
    """Find the best mix whose speed is worth its size, as `worth_its_size` says; None if nothing fits the disk."""
    fastest = search(problem)
    if fastest is None or _stored(fastest)[0] <= problem.stored.min():
        return fastest
    limits = sorted({size for size in problem.stored.tolist() if size < problem.most_bytes})
    limited = [search(replace(problem, most_bytes=limit)) for limit in limits]
    found = [each for each in (*limited, fastest) if each is not None]
    chosen = worth_its_size([(1 / each.time if each.time > 0 else math.inf, _stored(each)[0]) for each in found])
    return None if chosen is None else found[chosen]


def worth_its_size(choices: Sequence[tuple[float, float]]) -> int | None:
    """Choose among (rate, bytes): each doubling of the bytes must make it `DOUBLING` times faster.

    So five times the disk is taken for 1.25 times the speed, and not for 3 %. Returns the position; None for no choice.
    """

    def merit(position: int) -> tuple[float, float]:
        rate, n_bytes = choices[position]
        size = max(n_bytes, 1.0)
        if not 0 < rate < math.inf:
            return rate, -size
        return math.log2(rate) - math.log2(DOUBLING) * math.log2(size), -size

    return max(range(len(choices)), key=merit, default=None)


def _one_place_each(costs: Sequence[Cost]) -> Iterator[list[int]]:
    """All choices of one place a format: a dataset cannot tell two kinds of the same format apart."""
    by_format: dict[str, list[int]] = {}
    for row, cost in enumerate(costs):
        by_format.setdefault(cost.format, []).append(row)
    return (list(rows) for rows in itertools.product(*by_format.values()))


def _search_places(problem: Problem) -> Mixture | None:
    every = _solve(problem)
    if every is None:
        return None
    kept = [k for k, share in enumerate(every) if share >= MIN_SHARE]
    candidates: list[list[int]] = [[k] for k in range(len(problem.costs))]
    if len(kept) > 2:
        candidates += [list(pair) for pair in itertools.combinations(kept, 2)]
    if len(kept) > 1:
        candidates.append(kept)
    best: Mixture | None = None
    for _, sized in itertools.groupby(candidates, key=len):
        found = [mixture for rows in sized if (mixture := _mixture(problem.subset(rows))) is not None]
        if found:
            least = min(each.time for each in found)
            smallest = min((each for each in found if each.time <= least * (1 + _SAME)), key=_stored)
            if best is None or smallest.time < best.time * (1 - WORTH):
                best = smallest
    return best


def _stored(mixture: Mixture) -> tuple[float, tuple[str, ...]]:
    total = math.fsum(x * cost.stored_bytes for x, cost in zip(mixture.shares, mixture.costs, strict=True))
    return total, tuple(cost.format for cost in mixture.costs)


def _mixture(problem: Problem) -> Mixture | None:
    """The best mix of all these formats, none with less than the least share."""
    if len(problem.costs) == 1:
        if problem.stored[0] > problem.most_bytes * (1 + _SAME):
            return None
        return Mixture(problem.costs, (1.0,), problem.time(np.ones(1)))
    shares = _solve(problem, least_share=MIN_SHARE)
    if shares is None:
        return None
    rounded = _round(shares, problem.stored)
    return Mixture(problem.costs, tuple(map(float, rounded)), problem.time(rounded))


def _round(shares: npt.NDArray[np.float64], stored: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shares of a few decimals; what is cut off goes to the smallest format, so that a disk budget still holds."""
    cut = np.floor(shares * 10**_PLACES + 1e-6) / 10**_PLACES
    smallest = int(np.argmin(stored))
    cut[smallest] = round(1.0 - float(np.delete(cut, smallest).sum()), _PLACES)
    return np.asarray(np.round(cut, _PLACES))


def _solve(problem: Problem, *, least_share: float = 0.0) -> npt.NDArray[np.float64] | None:
    """The fastest mix, and of those the smallest; None if none fits."""
    scale = min(problem.time(row) for row in np.eye(len(problem.costs)))
    if scale <= 0:
        scale = 1.0  # nothing costs anything
    n = len(problem.costs)
    margins = np.full(problem.loads.shape[1], 1 + MARGIN)
    margins[-1] = 1.0
    base = np.zeros(problem.loads.shape[1])
    base[-1] = problem.base
    # The solver's tolerances are absolute: times are told in those of the best single format, bytes in the smallest's.
    rows = np.hstack([(problem.loads * margins / scale).T, -np.ones((len(base), 1))])
    limits = -base / scale
    unit = float(problem.stored.min()) or 1.0
    if math.isfinite(problem.most_bytes):
        rows = np.vstack([rows, [*(problem.stored / unit), 0.0]])
        limits = np.append(limits, problem.most_bytes / unit)
    bounds = [(least_share, 1.0)] * n + [(0.0, None)]
    fastest = _minimise([0.0] * n + [1.0], rows, limits, bounds)
    if fastest is None:
        return None
    bounds[-1] = (0.0, float(fastest[-1]) * (1 + _SAME) + _SAME)
    smallest = _minimise([*(problem.stored / unit), 0.0], rows, limits, bounds)
    return (fastest if smallest is None else smallest)[:n]


def find_solver() -> Callable[..., Any]:
    """SciPy's solver of linear programs; MissingExtra if it is not installed."""
    try:
        from scipy.optimize import linprog  # type: ignore[import-untyped] # noqa: PLC0415 - an extra, slow to import
    except ImportError as error:
        raise MissingExtra("a plan is found by SciPy, which is not installed: pip install 'headrace[plan]'") from error
    found: Callable[..., Any] = linprog
    return found


def _minimise(
    objective: Sequence[float],
    rows: npt.NDArray[np.float64],
    limits: npt.NDArray[np.float64],
    bounds: Sequence[tuple[float, float | None]],
) -> npt.NDArray[np.float64] | None:
    whole = np.ones((1, len(objective)))
    whole[0, -1] = 0.0
    result = find_solver()(objective, A_ub=rows, b_ub=limits, A_eq=whole, b_eq=[1.0], bounds=bounds, method="highs")
    if result.status == 2:  # infeasible
        return None
    if result.status != 0:
        raise RuntimeError(f"the linear program of the plan was not solved: {result.message}")
    return np.asarray(result.x, np.float64)
