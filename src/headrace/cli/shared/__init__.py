# SPDX-License-Identifier: Apache-2.0
"""Options, output and file handling that several verbs of the command line share."""
