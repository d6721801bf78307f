# SPDX-License-Identifier: Apache-2.0
"""What can be profiled, and the course of measurements for each: a folder, our own loader, anyone's."""
