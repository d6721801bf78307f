# SPDX-License-Identifier: Apache-2.0
"""`python -m headrace` is the command line."""

from headrace.cli import main

main()
