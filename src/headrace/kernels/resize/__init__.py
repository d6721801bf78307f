# SPDX-License-Identifier: Apache-2.0
"""Resizing on the accelerator, with the weights of the CPU's."""
