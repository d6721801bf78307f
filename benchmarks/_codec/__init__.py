# SPDX-License-Identifier: Apache-2.0
"""The parts of the codec benchmark: images, peers, the race, totals, the report."""
