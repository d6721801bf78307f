# SPDX-License-Identifier: Apache-2.0
"""Undo the prediction: one wave per plane of a tile."""
