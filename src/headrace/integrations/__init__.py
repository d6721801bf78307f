# SPDX-License-Identifier: Apache-2.0
"""Adapters for libraries that need more of a loader than `headrace.Loader` offers: one file per library.

Each imports its library, so import the one that you use. Most trainers need none: see docs/how-to/trainers.md.
"""
