# SPDX-License-Identifier: Apache-2.0
"""From measurements to a verdict and its remedies: pure arithmetic."""
