# SPDX-License-Identifier: Apache-2.0
"""Packed tiles (mode `fast`): from packed bits to residuals."""
