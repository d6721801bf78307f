# SPDX-License-Identifier: Apache-2.0
"""The loader's side of offloading: when prepared batches are used, and what happens if they are missing."""
