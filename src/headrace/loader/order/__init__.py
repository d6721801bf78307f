# SPDX-License-Identifier: Apache-2.0
"""Which sample comes when: pure functions of (n, seed, epoch, rank, world size)."""
