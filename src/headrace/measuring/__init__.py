# SPDX-License-Identifier: Apache-2.0
"""The instruments that planning, profiling and offloading share: time, memory, energy, storage, noise and sampling."""

from headrace.measuring._cold import cached_share, drop, read_file
from headrace.measuring._energy import WATTS_PER_CORE, EnergyCounter, estimated_joules
from headrace.measuring._images import (
    FILE_KINDS,
    FileRange,
    ImageSample,
    Positions,
    encoded_image,
    file_ranges,
    from_dataset,
    from_source,
    list_items,
    some_of,
    stored_bytes,
)
from headrace.measuring._noise import MAX_OTHER_LOAD, CpuTimes, NoiseMonitor, repeats_agree
from headrace.measuring._process import ResourceUse, available_memory, cpu_name, metered
from headrace.measuring._sampling import SourceSample, take_sample
from headrace.measuring._stopwatch import Rate, pass_over, scaling_of, timed
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
    "MAX_OTHER_LOAD",
    "QUEUE_DEPTH",
    "WATTS_PER_CORE",
    "CpuTimes",
    "EnergyCounter",
    "FileRange",
    "ImageSample",
    "NoiseMonitor",
    "Positions",
    "Rate",
    "ReadRate",
    "ResourceUse",
    "SourceSample",
    "available_memory",
    "cached_share",
    "cpu_name",
    "drop",
    "encoded_image",
    "estimated_joules",
    "file_ranges",
    "from_dataset",
    "from_source",
    "list_items",
    "measure_direct",
    "measure_raw_files",
    "measure_records",
    "measure_storage",
    "metered",
    "pass_over",
    "read_file",
    "repeats_agree",
    "scaling_of",
    "some_of",
    "source_files",
    "stored_bytes",
    "take_sample",
    "timed",
]
