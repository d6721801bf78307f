# SPDX-License-Identifier: Apache-2.0
"""Importers: each reads one layout of images behind one protocol, listed in a defined order and read one by one.

    source = open_source("photos/")
    for item in source.items():
        sample = source.load(item)

A source is not trusted: names and links that lead elsewhere, devices and decompression bombs raise `BadSource`.
"""

from headrace.sources._detect import KINDS, open_source
from headrace.sources._splits import SplitSource
from headrace.sources._types import MAX_FILE_BYTES, Encoded, Item, Source
from headrace.sources.cityscapes import CityscapesSource
from headrace.sources.coco import CocoSource
from headrace.sources.dataset import DatasetSource, is_dataset
from headrace.sources.folder import ClassFolderSource, FolderSource
from headrace.sources.huggingface.source import HuggingFaceSource
from headrace.sources.iterable import IterableSource
from headrace.sources.parquet import ParquetSource
from headrace.sources.scientific.dicom import DicomSource
from headrace.sources.scientific.nifti import NiftiSource
from headrace.sources.scientific.npy import NpySource
from headrace.sources.scientific.tiff import TiffSource
from headrace.sources.segmentation import SegmentationSource
from headrace.sources.webdataset import WebDatasetSource
from headrace.sources.yolo import YoloSource

__all__ = [
    "KINDS",
    "MAX_FILE_BYTES",
    "CityscapesSource",
    "ClassFolderSource",
    "CocoSource",
    "DatasetSource",
    "DicomSource",
    "Encoded",
    "FolderSource",
    "HuggingFaceSource",
    "Item",
    "IterableSource",
    "NiftiSource",
    "NpySource",
    "ParquetSource",
    "SegmentationSource",
    "Source",
    "SplitSource",
    "TiffSource",
    "WebDatasetSource",
    "YoloSource",
    "is_dataset",
    "open_source",
]
