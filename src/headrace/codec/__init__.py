# SPDX-License-Identifier: Apache-2.0
"""Encode, decode and inspect `.hri` images, and choose the SIMD instruction set that does it.

Import `headrace.codec.pillow` to let Pillow open and save them.
"""

from headrace import _core
from headrace.codec._encoding import encode
from headrace.codec.decoding import ImageInfo, decode, decode_many, inspect, verify

__all__ = [
    "ImageInfo",
    "active_target",
    "decode",
    "decode_many",
    "encode",
    "inspect",
    "targets",
    "use_target",
    "verify",
]


def targets() -> tuple[str, ...]:
    """Return the SIMD targets that this machine supports, slowest first. "scalar" is always one of them."""
    return _core.targets()


def active_target() -> str:
    """Return the target in use: the fastest one, unless `use_target` chose another."""
    return _core.active_target()


def use_target(name: str) -> None:
    """Use this target in the complete process, for tests and measurements.

    Every target gives the same bytes and the same pixels. Calls in progress finish on their old target.
    """
    _core.use_target(name)


for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
