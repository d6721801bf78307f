# SPDX-License-Identifier: Apache-2.0
"""The arrays of a prepared batch by their names: its fields of pixels, and the rows that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from headrace.loader.pixels._engine import Rows, Stack

ROWS = "_rows"
"""The rows of the dataset that the batch is made of, so that a batch of others cannot be taken for it."""


def flat(stacks: Mapping[str, Stack], rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Name each array of a batch; images of differing shape are one a sample: `image.0`, `image.1` and so on."""
    arrays: dict[str, npt.NDArray[Any]] = {ROWS: rows}
    for field, stack in stacks.items():
        if isinstance(stack, list):
            arrays.update({f"{field}.{at}": array for at, array in enumerate(stack)})
        else:
            arrays[field] = stack
    return arrays
