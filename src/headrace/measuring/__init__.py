# SPDX-License-Identifier: Apache-2.0
"""Instruments that planning and profiling share: time, memory, energy, storage, other load, samples of images."""

from headrace.measuring._cold import drop
from headrace.measuring._energy import WATTS_PER_CORE, EnergyCounter
from headrace.measuring._images import (
    FILE_KINDS,
    FileRange,
    ImageSample,
    Positions,
    encoded_image,
    sample_dataset,
    sample_source,
    stored_bytes,
)
from headrace.measuring._process import (
    NoiseMonitor,
    ResourceUse,
    available_memory,
    busy_seconds,
    cpu_name,
    held_to,
    metered,
)
from headrace.measuring._sampling import SourceSample, list_items, some_of, take_sample
from headrace.measuring._stopwatch import Rate, Timing, timed
from headrace.measuring._storage import (
    QUEUE_DEPTH,
    ReadRate,
    measure_direct,
    measure_raw_files,
    measure_records,
    measure_storage,
    source_files,
)

__all__ = [
    "FILE_KINDS",
    "QUEUE_DEPTH",
    "WATTS_PER_CORE",
    "EnergyCounter",
    "FileRange",
    "ImageSample",
    "NoiseMonitor",
    "Positions",
    "Rate",
    "ReadRate",
    "ResourceUse",
    "SourceSample",
    "Timing",
    "available_memory",
    "busy_seconds",
    "cpu_name",
    "drop",
    "encoded_image",
    "held_to",
    "list_items",
    "measure_direct",
    "measure_raw_files",
    "measure_records",
    "measure_storage",
    "metered",
    "sample_dataset",
    "sample_source",
    "some_of",
    "source_files",
    "stored_bytes",
    "take_sample",
    "timed",
]
