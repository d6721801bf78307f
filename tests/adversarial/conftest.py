# SPDX-License-Identifier: Apache-2.0
"""Lends the parity fixtures of the codec's tests to the attacks on it."""

from tests.codec.conftest import implementation, mode, native

__all__ = ["implementation", "mode", "native"]
