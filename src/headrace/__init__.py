# SPDX-License-Identifier: Apache-2.0
"""Headrace brings images to the accelerator as fast as it can train on them, without losing a bit."""

from headrace import codec, errors
from headrace.codec import decode, encode, inspect

__all__ = ["codec", "decode", "encode", "errors", "inspect"]

__version__ = "0.1.0"
