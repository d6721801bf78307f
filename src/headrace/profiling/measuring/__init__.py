# SPDX-License-Identifier: Apache-2.0
"""The instruments: clocks and meters, and each stage alone. None knows in what course it is used."""
