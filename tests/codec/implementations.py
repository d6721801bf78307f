# SPDX-License-Identifier: Apache-2.0
"""The ways to decode a file that must agree: the spec's plain decoder, and the codec on each of its targets."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import headrace
import headrace.codec
from headrace.errors import CorruptImage, UnsupportedImage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.codec.pictures import Image

Mode = Literal["fast", "dense"]
Region = tuple[int, int, int, int]  # top, left, height, width

ROOT = Path(__file__).resolve().parents[2]
MODES: tuple[Mode, ...] = ("fast", "dense")

# The oracle and the plain writer stand beside the spec; they are scripts, not part of the package.
sys.path.append(str(ROOT / "spec"))
decoder = importlib.import_module("decoder")
writer = importlib.import_module("writer")


@contextmanager
def forced(target: str) -> Iterator[None]:
    """Run the codec on `target` for a while."""
    before = headrace.codec.active_target()
    headrace.codec.use_target(target)
    try:
        yield
    finally:
        headrace.codec.use_target(before)


@dataclass(frozen=True)
class Native:
    """The codec, on one target."""

    name: str
    samples: int = 60_000  # of a picture in a property test

    def encode(self, image: Image, **options: Any) -> bytes:
        with forced(self.name):
            return headrace.encode(image, **options)

    def decode(self, data: Any, **options: Any) -> Image:
        with forced(self.name):
            return headrace.decode(data, **options)

    def decode_many(self, datas: Any, **options: Any) -> Any:
        with forced(self.name):
            return headrace.codec.decode_many(datas, **options)


@dataclass(frozen=True)
class Oracle:
    """The plain decoder, which some thousand samples keep busy. It has no encoder: it judges the codec's."""

    name: str = "oracle"
    samples: int = 4_500  # 33 x 129 still crosses tiles both ways

    def encode(self, image: Image, **options: Any) -> bytes:
        return headrace.encode(image, **options)

    def decode(self, data: Any, *, region: Region | None = None) -> Image:
        try:
            image: Image = decoder.decode(bytes(data), region)
        except decoder.CorruptImage as error:
            raise CorruptImage(str(error)) from error
        except decoder.UnsupportedImage as error:
            raise UnsupportedImage(str(error)) from error
        return image


Implementation = Native | Oracle

NATIVES: list[Native] = [Native(name) for name in headrace.codec.targets()]
ORACLE = Oracle()
IMPLEMENTATIONS: list[Implementation] = [ORACLE, *NATIVES]
