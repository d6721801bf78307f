# SPDX-License-Identifier: Apache-2.0
"""Readers and writers for the headers of PNG, JPEG, WebP and TIFF files. They do not decode pixels."""
