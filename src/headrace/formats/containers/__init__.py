# SPDX-License-Identifier: Apache-2.0
"""What the headers of PNG, JPEG, WebP and TIFF files say, read without decoding pixels."""
