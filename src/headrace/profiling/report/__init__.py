# SPDX-License-Identifier: Apache-2.0
"""The report of a profile: JSON, terminal and HTML page."""
