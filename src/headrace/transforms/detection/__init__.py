# SPDX-License-Identifier: Apache-2.0
"""Transforms for detection, and how boxes and what belongs to them follow their image."""
