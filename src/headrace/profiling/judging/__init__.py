# SPDX-License-Identifier: Apache-2.0
"""From figures to a verdict and its remedies: arithmetic, and nothing else."""
