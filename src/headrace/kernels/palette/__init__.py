# SPDX-License-Identifier: Apache-2.0
"""Palette tiles: the exceptions of each block."""
