# SPDX-License-Identifier: Apache-2.0
"""Bilinear resize with antialiasing, with the weights of the CPU's transforms."""
