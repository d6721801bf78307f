# SPDX-License-Identifier: Apache-2.0
"""The exchange: the folder through which host and offload workers talk, and the prepared batches in it."""

from headrace.offload.exchange._host import HostExchange
from headrace.offload.exchange._names import BatchName, Stretch
from headrace.offload.exchange._reader import PreparedBatch
from headrace.offload.exchange._status import Heartbeat

__all__ = ["BatchName", "Heartbeat", "HostExchange", "PreparedBatch", "Stretch"]
