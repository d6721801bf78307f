# SPDX-License-Identifier: Apache-2.0
"""From pixels to a finished batch: other fields, user functions, collating, output tensors, statistics."""
