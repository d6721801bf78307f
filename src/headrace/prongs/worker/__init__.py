# SPDX-License-Identifier: Apache-2.0
"""The near worker: prepares batches from the tail of each rank's epoch and publishes them in an exchange folder."""

from headrace.prongs.worker._stopping import StopOnSignals
from headrace.prongs.worker._worker import NearWorker, Progress

__all__ = ["NearWorker", "Progress", "StopOnSignals"]
