# SPDX-License-Identifier: Apache-2.0
"""Strategies: pure functions from measured times to the order in which host and prepared batches are taken."""

from headrace.offload.strategies._mte import Mte
from headrace.offload.strategies._paced import Paced
from headrace.offload.strategies._pattern import Pattern
from headrace.offload.strategies._strategy import Strategy
from headrace.offload.strategies._wrr import Wrr

__all__ = ["Mte", "Paced", "Pattern", "Strategy", "Wrr"]
