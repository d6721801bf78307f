# SPDX-License-Identifier: Apache-2.0
"""Datasets as people have them, behind one small protocol: listed in a defined order, read sample by sample.

    source = open_source("photos/")
    for item in source.items():
        sample = source.load(item)

Nothing that a source says is trusted: names that lead elsewhere, links, devices and bombs raise `BadSource`.
"""

from headrace.sources._detect import KINDS, open_source
from headrace.sources._splits import SplitSource
from headrace.sources._types import MAX_FILE_BYTES, Encoded, Item, Source, orientation
from headrace.sources.cityscapes import CityscapesSource
from headrace.sources.coco import CocoSource
from headrace.sources.dataset import DatasetSource, is_dataset
from headrace.sources.folder import ClassFolderSource, FolderSource
from headrace.sources.iterable import IterableSource
from headrace.sources.parquet import ParquetSource
from headrace.sources.segmentation import SegmentationSource
from headrace.sources.webdataset import WebDatasetSource

__all__ = [
    "KINDS",
    "MAX_FILE_BYTES",
    "CityscapesSource",
    "ClassFolderSource",
    "CocoSource",
    "DatasetSource",
    "Encoded",
    "FolderSource",
    "Item",
    "IterableSource",
    "ParquetSource",
    "SegmentationSource",
    "Source",
    "SplitSource",
    "WebDatasetSource",
    "is_dataset",
    "open_source",
    "orientation",
]
