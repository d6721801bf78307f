# SPDX-License-Identifier: Apache-2.0
"""The last operation: from decoded planes to the output tensor."""
