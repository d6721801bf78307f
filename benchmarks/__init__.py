# SPDX-License-Identifier: Apache-2.0
"""Measurements of Headrace beside its peers, and the tables that are rendered from them."""
