# SPDX-License-Identifier: Apache-2.0
"""Palette, raw and constant tiles into samples."""
