# SPDX-License-Identifier: Apache-2.0
"""YOLO: images, a text file of labels for each of them, and `data.yaml` with splits and class names."""

from headrace.sources.yolo._data_yaml import is_yolo
from headrace.sources.yolo._source import YoloSource, open_yolo

__all__ = ["YoloSource", "is_yolo", "open_yolo"]
