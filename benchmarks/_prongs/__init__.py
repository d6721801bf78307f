# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmark of two prongs."""
