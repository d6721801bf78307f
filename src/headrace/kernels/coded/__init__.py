# SPDX-License-Identifier: Apache-2.0
"""The dense tiles: positions, classes and bits into residuals."""
