# SPDX-License-Identifier: Apache-2.0
"""Images and masks of a batch from the C++ engine, and what happens to samples that fail."""
