# SPDX-License-Identifier: Apache-2.0
"""The offload worker: prepares batches from the tail of each rank's epoch and publishes them in an exchange folder."""

from headrace.offload.worker._rank import prepared_text
from headrace.offload.worker._stopping import StopOnSignals
from headrace.offload.worker._worker import OffloadWorker, WorkerProgress

__all__ = ["OffloadWorker", "StopOnSignals", "WorkerProgress", "prepared_text"]
