# SPDX-License-Identifier: Apache-2.0
"""Measurements of Headrace and its peers, and the pages that are rendered from them."""
