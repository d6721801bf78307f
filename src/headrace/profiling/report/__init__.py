# SPDX-License-Identifier: Apache-2.0
"""The report of a profile: JSON, HTML page, terminal output and live progress."""
