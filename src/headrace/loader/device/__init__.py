# SPDX-License-Identifier: Apache-2.0
"""Batches on a GPU: copies on their own streams, and `hri` images decoded there."""
