# SPDX-License-Identifier: Apache-2.0
"""From pixels to the batch that the trainer receives: fields, user functions, collating, output arrays, statistics."""
