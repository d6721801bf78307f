# SPDX-License-Identifier: Apache-2.0
"""The verbs that make, list and remove versions of datasets, and merge datasets."""
