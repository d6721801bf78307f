# SPDX-License-Identifier: Apache-2.0
"""What all declarative transforms share: they are values, they know their JSON, and they lower to operations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

Operation: TypeAlias = tuple[str, tuple[float, ...]]
"""A name and parameters as the C++ core knows them (`OpKind` of headrace/transform.h)."""


@dataclass(frozen=True)
class Transform:
    """A declarative transform: an immutable value that says what is done, and holds no code and no state.

    Random ones draw from (seed, epoch, sample, operation, view) alone, so that the same sample of the same epoch comes
    out the same wherever and whenever it is prepared.
    """

    op: ClassVar[str]
    """The name in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return this transform as a JSON object; `from_json` reads it back as an equal one (spec/recipe.md)."""
        return {"op": self.op} | {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def operations(self) -> tuple[Operation, ...]:
        """Return what the C++ core is to do, in order."""
        raise NotImplementedError

    def _set(self, **checked: Any) -> None:
        """Store checked arguments; only for `__post_init__`."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Transform):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
