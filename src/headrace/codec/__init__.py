# SPDX-License-Identifier: Apache-2.0
"""Encode, decode and inspect `.hri` images; list and force the SIMD target that does it.

`headrace.codec.pillow`, imported on its own, teaches Pillow to open and save them.
"""

from headrace.codec._encode import encode
from headrace.codec._inspect import ImageInfo, inspect
from headrace.codec._targets import active_target, targets, use_target
from headrace.codec.decoding import decode, decode_many, verify

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

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
