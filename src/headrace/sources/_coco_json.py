# SPDX-License-Identifier: Apache-2.0
"""The JSON of COCO, without making objects of it all.

COCO's own annotations are 450 MB of text, which as Python objects take several GB. So the text is held, each annotation
is parsed once to see whose it is, and what stays is where it starts and ends.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from headrace.errors import BadSource
from headrace.sources._paths import require_file

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_JSON = 2**32
_LARGEST_ID = 2**63


@dataclass(slots=True)
class Annotations:
    """What the file says: categories, images, and the text of each image's annotations."""

    categories: dict[int, str] = field(default_factory=dict)
    images: dict[int, str] = field(default_factory=dict)
    """Image id → file name."""
    text: str = ""
    owners: array[int] = field(default_factory=lambda: array("q"))
    """For each annotation its image's id, where it starts, and where it ends."""
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))

    def by_image(self) -> Iterator[tuple[int, str, str]]:
        """Ids ascending, file names, and the image's annotations in the file's order as a JSON list."""
        owners = np.array(self.owners, np.int64)
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        for image_id in sorted(self.images):
            first, last = np.searchsorted(owners, (image_id, image_id + 1))
            spans = (self.text[self.starts[i] : self.ends[i]] for i in order[first:last])
            yield image_id, self.images[image_id], f"[{','.join(spans)}]"


def read(path: str) -> Annotations:
    """Read and check an `instances_*.json`."""
    require_file(path)
    try:
        n_bytes = Path(path).stat().st_size
        if n_bytes > LARGEST_JSON:
            raise BadSource(f"{path} has {n_bytes} bytes of JSON; at most {LARGEST_JSON} are read")
        reader = _Reader(path, Path(path).read_text(encoding="utf-8"))
        reader.read()
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadSource):
            raise
        raise BadSource(f"{path} is no valid JSON: {error}") from error
    return reader.found


class _Reader:
    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text
        self._decoder = json.JSONDecoder()
        self.found = Annotations(text=text)

    def read(self) -> None:
        """Walk the members of the outermost object; those that are not ours are parsed and dropped."""
        position = self._expect("{", self._skip(0))
        sections = {"categories": self._category, "images": self._image, "annotations": self._annotation}
        seen = set()
        while self._text[position : position + 1] == '"':
            name, position = self._decoder.raw_decode(self._text, position)
            position = self._expect(":", self._skip(position))
            if name in sections:
                seen.add(name)
                position = self._expect("[", position)
                position = self._elements(position, sections[name])
            else:
                _, position = self._decoder.raw_decode(self._text, position)
                position = self._skip(position)
            if self._text[position : position + 1] != ",":
                break
            position = self._skip(position + 1)
        self._expect("}", position)
        if seen != set(sections):
            self._fail(f"COCO has images, annotations and categories, and there is no {min(set(sections) - seen)}")
        unknown = set(self.found.owners) - self.found.images.keys()
        if unknown:
            self._fail(f"an annotation belongs to image {min(unknown)}, which is not among the images")

    def _elements(self, position: int, take: Any) -> int:
        while self._text[position : position + 1] != "]":
            element, end = self._decoder.raw_decode(self._text, position)
            if not isinstance(element, dict):
                self._fail(f"at character {position}: an object is expected")
            take(element, position, end)
            position = self._skip(end)
            if self._text[position : position + 1] != ",":
                break
            position = self._skip(position + 1)
        return self._expect("]", position)

    def _category(self, element: dict[str, Any], start: int, _: int) -> None:
        number, name = self._id(element, "id", start), element.get("name")
        if not isinstance(name, str) or number in self.found.categories:
            self._fail(f"at character {start}: category {number} comes twice or has no name")
        self.found.categories[number] = name

    def _image(self, element: dict[str, Any], start: int, _: int) -> None:
        number, name = self._id(element, "id", start), element.get("file_name")
        if not isinstance(name, str) or number in self.found.images:
            self._fail(f"at character {start}: image {number} comes twice or has no file_name")
        self.found.images[number] = name

    def _annotation(self, element: dict[str, Any], start: int, end: int) -> None:
        self.found.owners.append(self._id(element, "image_id", start))
        self.found.starts.append(start)
        self.found.ends.append(end)

    def _id(self, element: dict[str, Any], name: str, start: int) -> int:
        number = element.get(name)
        if not isinstance(number, int) or isinstance(number, bool) or not -_LARGEST_ID <= number < _LARGEST_ID - 1:
            self._fail(f"at character {start}: {name} is {str(number)[:40]} and no whole number of 64 bits")
        return number

    def _expect(self, character: str, position: int) -> int:
        if self._text[position : position + 1] != character:
            self._fail(f"at character {position}: {character!r} is expected")
        return self._skip(position + 1)

    def _skip(self, position: int) -> int:
        return int(WHITESPACE.match(self._text, position).end())

    def _fail(self, what: str) -> NoReturn:
        raise BadSource(f"{self._path}: {what}")
