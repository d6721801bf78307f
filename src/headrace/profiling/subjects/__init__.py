# SPDX-License-Identifier: Apache-2.0
"""What can be profiled, and the phases in which each subject is measured."""
