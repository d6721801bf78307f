# SPDX-License-Identifier: Apache-2.0
"""A report for people: in the terminal, as a page, and while it is being measured."""
