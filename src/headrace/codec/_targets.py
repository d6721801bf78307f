# SPDX-License-Identifier: Apache-2.0
"""Which SIMD instruction set runs the hot loops."""

from __future__ import annotations

from headrace import _core


def targets() -> tuple[str, ...]:
    """The targets that this machine can run, slowest first; "scalar" is always among them."""
    return _core.targets()


def active_target() -> str:
    """The target in use: the fastest one, unless `use_target` chose another."""
    return _core.active_target()


def use_target(name: str) -> None:
    """Force a target, for the whole process; meant for tests and measurements.

    Every target gives the same bytes and the same pixels. Calls under way finish on the target they began with.
    """
    _core.use_target(name)
