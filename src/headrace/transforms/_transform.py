# SPDX-License-Identifier: Apache-2.0
"""Base class of declarative transforms: immutable values that convert to JSON and to operations of the C++ core."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

Operation: TypeAlias = tuple[str, tuple[float, ...]]
"""Name and parameters of an operation of the C++ core (`OpKind` in headrace/transform.h)."""


@dataclass(frozen=True)
class Transform:
    """A declarative transform: an immutable value that describes an operation and holds no code and no state.

    Random transforms draw from (seed, epoch, sample, operation, view) only, so a sample of an epoch comes out the same
    wherever and whenever it is prepared.
    """

    op: ClassVar[str]
    """Name in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return this transform as a JSON object. `from_json` makes an equal transform from it (spec/recipe.md)."""
        return {"op": self.op} | {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations for the C++ core, in order."""
        raise NotImplementedError

    def _set(self, **checked: Any) -> None:
        """Store checked arguments. Only for `__post_init__`."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Transform):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
