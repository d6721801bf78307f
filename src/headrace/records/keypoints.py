# SPDX-License-Identifier: Apache-2.0
"""What the keypoints of a field are called, and which of them are connected (spec/dataset.md §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_KEYPOINTS = 1024
_MAX_EDGES = 16384
_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Keypoints:
    """The names of the keypoints of each box, in order, and the pairs of them that a line connects."""

    names: tuple[str, ...]
    skeleton: tuple[tuple[int, int], ...] = ()
    """Numbers of keypoints, from 0."""

    def __post_init__(self) -> None:
        if len(self.names) > MAX_KEYPOINTS or len(set(self.names)) != len(self.names):
            raise ValueError(f"keypoints must have at most {MAX_KEYPOINTS} names, all different")
        ends = [end for edge in self.skeleton for end in edge]
        if len(self.skeleton) > _MAX_EDGES or not all(0 <= end < len(self.names) for end in ends):
            raise ValueError(f"a skeleton must connect keypoints 0 to {len(self.names) - 1}; got {ends[:20]}")

    @property
    def flip_pairs(self) -> tuple[tuple[int, int], ...]:
        """The keypoints that a mirrored image exchanges: those whose names differ in "left" and "right" only."""
        numbers = {name.lower(): number for number, name in enumerate(self.names)}
        left, right = _SIDES
        others = {number: numbers.get(name.replace(left, right)) for name, number in numbers.items() if left in name}
        return tuple(sorted((one, other) for one, other in others.items() if other is not None and other != one))

    def to_json(self) -> dict[str, Any]:
        return {"names": self.names, "skeleton": self.skeleton}


def read_keypoints(given: Any) -> Keypoints:
    """Return keypoints from JSON. Raises ValueError or TypeError for anything else than names and a skeleton."""
    if not isinstance(given, Mapping):
        raise TypeError("keypoints must be an object with names and a skeleton")
    names: Any = given.get("names")
    skeleton: Any = given.get("skeleton", ())
    if not _is_list(names) or not all(isinstance(name, str) for name in names):
        raise TypeError("the names of keypoints must be a list of strings")
    for name in names:
        name.encode()  # a lone surrogate, which JSON can spell, is a ValueError
    edges: Any = skeleton if _is_list(skeleton) else [None]
    if not all(_is_list(edge) and len(edge) == 2 and all(map(_is_int, edge)) for edge in edges):
        raise TypeError("a skeleton must be a list of pairs of numbers")
    return Keypoints(tuple(names), tuple((edge[0], edge[1]) for edge in edges))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
