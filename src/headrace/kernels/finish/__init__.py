# SPDX-License-Identifier: Apache-2.0
"""The last kernel: pixels into the tensor that trains."""
