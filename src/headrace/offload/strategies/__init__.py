# SPDX-License-Identifier: Apache-2.0
"""Strategies: pure functions from measured times to the order of host batches and prepared batches."""

from headrace.offload.strategies._patterns import Pattern
from headrace.offload.strategies._strategies import Mte, Paced, Strategy, Wrr

__all__ = ["Mte", "Paced", "Pattern", "Strategy", "Wrr"]
