# SPDX-License-Identifier: Apache-2.0
"""GPUs and other devices: copying batches to them, and decoding `hri` images on them."""
