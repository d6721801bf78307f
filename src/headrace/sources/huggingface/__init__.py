# SPDX-License-Identifier: Apache-2.0
"""Datasets of the Hugging Face library `datasets`: objects, and folders that `save_to_disk` wrote."""
