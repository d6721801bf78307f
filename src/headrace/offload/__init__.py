# SPDX-License-Identifier: Apache-2.0
"""Offloading: offload workers prepare batches from the tail of the epoch while the host works from its head."""

from headrace.errors import BadPreparedBatch, ExchangeError
from headrace.offload._offload import Offload
from headrace.offload.strategies import Mte, Paced, Pattern, Strategy, Wrr

__all__ = ["BadPreparedBatch", "ExchangeError", "Mte", "Offload", "Paced", "Pattern", "Strategy", "Wrr"]
