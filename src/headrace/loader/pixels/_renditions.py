# SPDX-License-Identifier: Apache-2.0
"""Which renditions of an image the engine may choose from.

A dataset's renditions of one image decode to the same pixels (spec/dataset.md §6), so that the choice changes nothing
but time. The engine makes it as late as it can, when a thread takes the sample: by what storage and cores have before
them at that moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.records import Dataset


class Renditions:
    """Where the images of a dataset lie, in all their renditions. Safe to use from many threads."""

    def __init__(self, dataset: Dataset) -> None:
        self._gather = dataset.gather
        self._counts = {field.name: field.renditions for field in dataset.manifest.fields if field.is_pixels}

    def of(self, name: str, rows: npt.NDArray[np.int64]) -> list[dict[str, npt.NDArray[Any]]]:
        """Give the columns of each rendition of a field, an item a row."""
        return [self._gather.pixel_columns(name, number, rows) for number in range(self._counts[name])]
