# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmark of accelerators: pictures, the green gate, our own figures, and those of peers."""
