# SPDX-License-Identifier: Apache-2.0
"""Look at what transforms do: on one image in memory, and as a picture of many draws."""
