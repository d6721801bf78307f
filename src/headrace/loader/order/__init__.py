# SPDX-License-Identifier: Apache-2.0
"""The order of samples: pure functions of (n, seed, epoch, rank, world size)."""
