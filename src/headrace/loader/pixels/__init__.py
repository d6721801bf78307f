# SPDX-License-Identifier: Apache-2.0
"""Images and masks from the C++ engine, and what happens to samples that fail."""
