# SPDX-License-Identifier: Apache-2.0
"""The exchange: the folder through which hosts and offload workers communicate, and the prepared batches in it."""

from headrace.offload.exchange._batch_file import PreparedBatch
from headrace.offload.exchange._documents import Heartbeat
from headrace.offload.exchange._host import HostExchange
from headrace.offload.exchange._names import BatchName, Stretch

__all__ = ["BatchName", "Heartbeat", "HostExchange", "PreparedBatch", "Stretch"]
