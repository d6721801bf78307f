# SPDX-License-Identifier: Apache-2.0
"""Read COCO's JSON with little memory.

COCO's own annotations are 450 MB of text, which take several GB as Python objects. So the text is kept, each annotation
is parsed once for its image, and only its position in the text is stored.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from functools import partial
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from headrace.errors import BadSource
from headrace.files import read_file
from headrace.sources._paths import reading

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_JSON_BYTES = 2**32
_MAX_ID = 2**63


@dataclass(slots=True)
class Annotations:
    """Categories, images, and the text of each image's annotations."""

    categories: dict[int, str] = field(default_factory=dict)
    keypoints: list[tuple[Any, Any]] = field(default_factory=list)
    """The names and the skeleton of each category that has keypoints, as they are in the file."""
    images: dict[int, str] = field(default_factory=dict)
    """Image id → file name."""
    text: str = ""
    owners: array[int] = field(default_factory=lambda: array("q"))
    """Per annotation: the id of its image, and its start and end in the text."""
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))

    def by_image(self) -> Iterator[tuple[int, str, str]]:
        """Yield id, file name, and annotations in the order of the file as a JSON list; ids ascend."""
        owners = np.array(self.owners, np.int64)
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        for image_id in sorted(self.images):
            first, last = np.searchsorted(owners, (image_id, image_id + 1))
            spans = (self.text[self.starts[i] : self.ends[i]] for i in order[first:last])
            yield image_id, self.images[image_id], f"[{','.join(spans)}]"


def read(path: str) -> Annotations:
    """Read and check an `instances_*.json`."""
    with reading(path):
        text = read_file(path, MAX_JSON_BYTES).decode()
    reader = _Reader(path, text)
    try:
        reader.read()
    except BadSource:
        raise
    except (ValueError, RecursionError) as error:
        raise BadSource(f"{path} is not valid JSON: {error}") from error
    return reader.found


class _Reader:
    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text
        self._decoder = json.JSONDecoder()
        self.found = Annotations(text=text)

    def read(self) -> None:
        """Parse the members of the outermost object; members that COCO does not define are ignored."""
        position = self._expect("{", self._skip(0))
        found = self.found
        sections = {
            "categories": self._category,
            "images": partial(self._named, "image", found.images, "file_name"),
            "annotations": self._annotation,
        }
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
            self._fail(f"must have images, annotations and categories; {min(set(sections) - seen)} is missing")
        unknown = set(self.found.owners) - self.found.images.keys()
        if unknown:
            self._fail(f"an annotation belongs to image {min(unknown)}, which is not in images")

    def _elements(self, position: int, take: Any) -> int:
        while self._text[position : position + 1] != "]":
            element, end = self._decoder.raw_decode(self._text, position)
            if not isinstance(element, dict):
                self._fail(f"the value at character {position} must be an object")
            take(element, position, end)
            position = self._skip(end)
            if self._text[position : position + 1] != ",":
                break
            position = self._skip(position + 1)
        return self._expect("]", position)

    def _named(self, what: str, names: dict[int, str], member: str, element: Any, start: int, _: int) -> None:
        number, name = self._id(element, "id", start), element.get(member)
        if not isinstance(name, str) or number in names:
            self._fail(f"at character {start}: {what} {number} is a duplicate or has no {member}")
        names[number] = name

    def _category(self, element: Any, start: int, end: int) -> None:
        self._named("category", self.found.categories, "name", element, start, end)
        if element.get("keypoints"):
            self.found.keypoints.append((element["keypoints"], element.get("skeleton") or []))

    def _annotation(self, element: dict[str, Any], start: int, end: int) -> None:
        self.found.owners.append(self._id(element, "image_id", start))
        self.found.starts.append(start)
        self.found.ends.append(end)

    def _id(self, element: dict[str, Any], name: str, start: int) -> int:
        number = element.get(name)
        if not isinstance(number, int) or isinstance(number, bool) or not -_MAX_ID <= number < _MAX_ID - 1:
            self._fail(f"at character {start}: {name} must be a 64-bit integer; got {str(number)[:40]}")
        return number

    def _expect(self, character: str, position: int) -> int:
        if self._text[position : position + 1] != character:
            self._fail(f"character {position} must be {character!r}")
        return self._skip(position + 1)

    def _skip(self, position: int) -> int:
        return int(WHITESPACE.match(self._text, position).end())

    def _fail(self, what: str) -> NoReturn:
        raise BadSource(f"{self._path}: {what}")
