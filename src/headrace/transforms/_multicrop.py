# SPDX-License-Identifier: Apache-2.0
"""`MultiCrop`: groups of views of a sample, each with its own transforms and output size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._composition import MAX_VIEWS, check_order, view_transforms


@dataclass(frozen=True)
class View:
    """`n` views of a sample that are made by the same transforms: a group of `MultiCrop`."""

    n: int
    transforms: Iterable[Transform]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", arguments.integer("View: n", self.n, 1, MAX_VIEWS))
        transforms = view_transforms("View", self.transforms)
        check_order(transforms)
        object.__setattr__(self, "transforms", transforms)

    def to_json(self) -> dict[str, Any]:
        """Return this group as a JSON object."""
        return {"n": self.n, "transforms": [item.to_json() for item in self.transforms]}


@dataclass(frozen=True)
class MultiCrop(Transform):
    """Make groups of augmented views of each sample: an image field of a batch is a list, `[B, n, C, H, W]` per group.

    Each sample is read and decoded once for all of its views. The views of DINO, SwAV, SimCLR and BYOL:

        transform=[MultiCrop([View(2, [RandomResizedCrop(224, (0.4, 1.0)), …]), View(8, [RandomResizedCrop(96), …])])]

    `MultiCrop` must be the only declarative transform in its list. All views have draws of their own. Without it, each
    of several views of one kind is made by `Views`.
    """

    views: Iterable[View]

    op: ClassVar[str] = "multi_crop"
    nests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.views, View):
            raise TypeError("MultiCrop: views must be a list, as in MultiCrop([View(2, [...]), View(8, [...])])")
        views = tuple(self.views)
        for item in views:
            if not isinstance(item, View):
                raise TypeError(f"MultiCrop: views must be a list of View(n, [...]); got {item!r}")
        if len(views) < 2:
            raise ValueError("MultiCrop: there must be at least two groups of views; for one, use Views(n, [...])")
        if sum(view.n for view in views) > MAX_VIEWS:
            raise ValueError(f"MultiCrop: there must be at most {MAX_VIEWS} views")
        self._set(views=views)

    def to_json(self) -> dict[str, Any]:
        """Return this transform as a JSON object."""
        return {"op": self.op, "views": [view.to_json() for view in self.views]}

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations of all groups; each group is compiled on its own."""
        return tuple(operation for view in self.views for item in view.transforms for operation in item.operations())


def views_from_json(document: Any, transforms_from_json: Any) -> tuple[View, ...]:
    """Make the groups of a JSON list; `transforms_from_json` makes transforms of a list."""
    if not isinstance(document, (list, tuple)):
        raise ValueError(f"views must be a list; got {document!r}")
    made = []
    for position, item in enumerate(document):
        if not isinstance(item, Mapping) or set(item) != {"n", "transforms"}:
            raise ValueError(f"views {position}: must be an object with the members n and transforms; got {item!r}")
        made.append(View(item["n"], transforms_from_json(item["transforms"])))
    return tuple(made)
