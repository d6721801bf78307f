# SPDX-License-Identifier: Apache-2.0
"""The fast tiles: packed bits into residuals."""
