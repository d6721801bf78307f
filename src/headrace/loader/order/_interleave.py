# SPDX-License-Identifier: Apache-2.0
"""Which part of a mixture each position of an epoch belongs to. Pure functions; spec/order.md §3 defines the result.

After every position k, part i had floor or ceil of its target k · share / total samples. The parts of a block of
positions are computed on their own, from how many samples of each part came before the block and before the next one.
These counts are a function of k alone, so any position is found without computing the ones before it.

READ ME FIRST. A sample of a part is a job that must be done in a window of positions, one job per position. Whether
independent counts at the two ends of a block can always be connected is not obvious. They can if each of them leaves
no window too full on its right side and on its left side, and if each part's target grows by at least 1 in a block, so
that no count falls. The unit cells in `_ahead` ensure the first condition: in the order of deadlines for the right
side, and in the order of releases for the left side. The length of a block ensures the second one.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import TypeAlias

import numpy as np

from headrace.loader.order._keys import draw, draw_many, epoch_key
from headrace.loader.order._order import Positions, as_positions

Places: TypeAlias = tuple[Positions, Positions]
"""For each position its part, and how many samples of that part came before it in the epoch."""

_Node: TypeAlias = tuple[str, int]
_Edges: TypeAlias = dict[_Node, list[_Node]]

STREAM = 4
MAX_PARTS = 256
MIN_BLOCK = 1024
MAX_BLOCK = 1 << 17
"""The smallest share is one of so many samples. A block takes about 0.2 s then."""
MAX_TOTAL = 1 << 48
_SWEEPS = 16
_MAX_KEPT = 1 << 16  # positions of blocks: 1 MB; but at least two blocks


class Interleave:
    """The part of each position of an epoch. Safe to use from many threads."""

    def __init__(self, shares: Sequence[int], *, seed: int = 0, shuffle: bool = False) -> None:
        self.shares = tuple(int(share) for share in shares)
        self.total = sum(self.shares)
        if not 1 <= len(self.shares) <= MAX_PARTS or min(self.shares) < 0 or not 0 < self.total <= MAX_TOTAL:
            raise ValueError(
                f"a mixture must have 1 to {MAX_PARTS} parts with shares >= 0 and a sum of 1 to 2**48; "
                f"got {len(self.shares)} shares with the sum {self.total}"
            )
        rarest = min(share for share in self.shares if share)
        if rarest * MAX_BLOCK < self.total:
            part = self.shares.index(rarest)
            raise ValueError(
                f"each share must be 0 or at least 1/{MAX_BLOCK} of all; share {part} is {rarest / self.total:.3g}: "
                f"give it more, or omit the part"
            )
        self.seed, self.shuffle = seed, shuffle
        self.block = max(MIN_BLOCK, 1 << (-(-self.total // rarest) - 1).bit_length())
        self._blocks: OrderedDict[tuple[int, int], Places] = OrderedDict()
        self._lock = Lock()

    def take(self, epoch: int, positions: Positions | range, n: int) -> Places:
        """Return the places of positions in [0, n): 4 us each if they are close together."""
        chosen = as_positions(positions, n)
        parts, numbers = np.empty_like(chosen), np.empty_like(chosen)
        blocks = chosen // self.block
        for block in np.unique(blocks).tolist():
            here = np.flatnonzero(blocks == block)
            block_parts, block_numbers = self._block(epoch, block)
            within = chosen[here] - block * self.block
            parts[here], numbers[here] = block_parts[within], block_numbers[within]
        return parts, numbers

    def counts(self, k: int, epoch: int = 0) -> list[int]:
        """Return how many samples of each part the first k positions of an epoch contain."""
        block, within = divmod(k, self.block)
        before = self._before(block * self.block)
        if within:
            parts, _ = self._block(epoch, block)
            return [
                a + b for a, b in zip(before, np.bincount(parts[:within], minlength=len(before)).tolist(), strict=True)
            ]
        return before

    def _block(self, epoch: int, block: int) -> Places:
        key = (epoch, block)
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
        made = self._make_block(epoch, block)
        with self._lock:
            self._blocks[key] = made
            while len(self._blocks) > max(2, _MAX_KEPT // self.block):
                self._blocks.popitem(last=False)
        return made

    def _make_block(self, epoch: int, block: int) -> Places:
        start = block * self.block
        first, last = self._before(start), self._before(start + self.block)
        parts, releases, deadlines = self._by_deadline(start, first, last)
        if self.shuffle:
            self._exchange(parts, releases, deadlines, draw(epoch_key(self.seed, epoch, STREAM), block))
        numbers = np.empty_like(parts)
        for part in np.unique(parts).tolist():
            here = np.flatnonzero(parts == part)
            numbers[here] = first[part] + np.arange(len(here))
        return parts, numbers

    def _by_deadline(self, start: int, first: list[int], last: list[int]) -> tuple[Positions, Positions, Positions]:
        """Place the samples of a block: at each position, the one with the earliest deadline that is released."""
        total, stop = self.total, start + self.block
        waiting = []  # the next sample of each part, by release
        for part, (number, end) in enumerate(zip(first, last, strict=True)):
            if number < end:
                waiting.append((number * total // self.shares[part], part, number))
        heapq.heapify(waiting)
        ready: list[tuple[int, int, int, int]] = []
        table = np.empty((3, self.block), np.int64)
        for at in range(start, stop):
            while waiting and waiting[0][0] <= at:
                release, part, number = heapq.heappop(waiting)
                deadline = -(-(number + 1) * total // self.shares[part]) - 1
                heapq.heappush(ready, (min(deadline, stop - 1), part, number, release))
            deadline, part, number, release = heapq.heappop(ready)
            table[:, at - start] = part, max(release, start) - start, deadline - start
            if number + 1 < last[part]:
                heapq.heappush(waiting, ((number + 1) * total // self.shares[part], part, number + 1))
        return table[0], table[1], table[2]

    @staticmethod
    def _exchange(parts: Positions, releases: Positions, deadlines: Positions, key: int) -> None:
        """Exchange neighbours at random, as far as their windows allow."""
        for sweep in range(2 * _SWEEPS):
            left = np.arange(sweep % 2, len(parts) - 1, 2)
            right = left + 1
            heads = draw_many(draw(key, sweep), left) >> np.uint64(63) == 1
            fits = (parts[left] != parts[right]) & (deadlines[left] > left) & (releases[right] <= left)
            left, right = left[heads & fits], right[heads & fits]
            for table in (parts, releases, deadlines):
                table[left], table[right] = table[right], table[left]

    def _before(self, k: int) -> list[int]:
        """Return how many samples of each part come before a block's first position k."""
        floors = [k * share // self.total for share in self.shares]
        left = {part: k * share % self.total for part, share in enumerate(self.shares) if k * share % self.total}
        for part in self._ahead(floors, left):
            floors[part] += 1
        return floors

    def _ahead(self, floors: list[int], left: dict[int, int]) -> list[int]:
        """Return the parts that have one more sample than the floor of their target; `left` is what is above it.

        Lay the fractions side by side, ordered by deadline, and cut the line into cells of length 1. In each cell one
        part that touches it is chosen, and the same holds for the cells of the line that is ordered by release. Such a
        choice is a flow of one unit per cell; it exists because the fractions themselves are such a flow.
        """
        total = self.total
        by_deadline = sorted(left, key=lambda part: (-(-(floors[part] + 1) * total // self.shares[part]), part))
        by_release = sorted(left, key=lambda part: (floors[part] * total // self.shares[part], part))
        return chosen_by_both(_cells(by_deadline, left, total), _cells(by_release, left, total))


def _cells(ordered: list[int], lengths: dict[int, int], total: int) -> list[list[int]]:
    """Return the parts that touch each cell of length `total`."""
    cells: list[list[int]] = [[] for _ in range(sum(lengths.values()) // total)]
    at = 0
    for part in ordered:
        for cell in range(at // total, (at + lengths[part] - 1) // total + 1):
            cells[cell].append(part)
        at += lengths[part]
    return cells


def chosen_by_both(first: list[list[int]], second: list[list[int]]) -> list[int]:
    """Choose distinct parts, one in each cell of `first` that are also one in each cell of `second`.

    Shortest augmenting paths by breadth-first search, from the cells of `first` in order. Nodes are ("u", cell of
    first), ("i", part) and ("o", part), the two sides of a part, and ("v", cell of second).
    """
    edges: _Edges = {}
    for cell, parts in enumerate(first):
        edges["u", cell] = [("i", part) for part in parts]
        edges.update({("i", part): [("o", part)] for part in parts})
    for cell, parts in enumerate(second):
        for part in parts:
            edges.setdefault(("o", part), []).append(("v", cell))
    filled: set[_Node] = set()
    for cell in range(len(first)):
        path = _shortest_path(edges, ("u", cell), filled)
        filled.add(path[-1])
        for before, node in pairwise(path):  # turn the edges of the path around
            edges[before].remove(node)
            edges.setdefault(node, []).append(before)
    return sorted(part for kind, part in edges if kind == "o" and ("i", part) in edges["o", part])


def _shortest_path(edges: _Edges, start: _Node, filled: set[_Node]) -> list[_Node]:
    """Return a path from a cell of `first` to a cell of `second` that is not filled."""
    came: dict[_Node, _Node | None] = {start: None}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in edges.get(node, ()):
            if following in came:
                continue
            came[following] = node
            queue.append(following)
            if following[0] == "v" and following not in filled:
                path = [following]
                while (before := came[path[-1]]) is not None:
                    path.append(before)
                return path[::-1]
    raise AssertionError("the fractions are a flow of one unit per cell, so there is a path")
