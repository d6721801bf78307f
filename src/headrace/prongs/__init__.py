# SPDX-License-Identifier: Apache-2.0
"""Preprocessing from both ends of an epoch: the exchange of prepared batches, and the strategies that consume them."""

from headrace.errors import BadPreparedBatch, ExchangeError
from headrace.prongs._exchange import BatchName, Stretch
from headrace.prongs._exchange_host import HostExchange
from headrace.prongs._exchange_status import Heartbeat
from headrace.prongs._mte import Mte
from headrace.prongs._paced import Paced
from headrace.prongs._pattern import Pattern
from headrace.prongs._reader import PreparedBatch
from headrace.prongs._strategy import Strategy
from headrace.prongs._wrr import Wrr

__all__ = [
    "BadPreparedBatch",
    "BatchName",
    "ExchangeError",
    "Heartbeat",
    "HostExchange",
    "Mte",
    "Paced",
    "Pattern",
    "PreparedBatch",
    "Strategy",
    "Stretch",
    "Wrr",
]
