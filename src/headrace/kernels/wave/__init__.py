# SPDX-License-Identifier: Apache-2.0
"""Undoing the prediction, a warp a tile."""
