# SPDX-License-Identifier: Apache-2.0
"""The Arrow index of a dataset: written, checked, mapped, and read by rows (spec/dataset.md)."""
