# SPDX-License-Identifier: Apache-2.0
"""The loader's side of offloading: when to use prepared batches, and what to do when they do not come."""
