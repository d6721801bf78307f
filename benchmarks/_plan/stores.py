# SPDX-License-Identifier: Apache-2.0
"""The images of a source as datasets: one a format, and one a plan, put together from those."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import headrace
from headrace.planning import Plan
from headrace.planning._sample import open_any
from headrace.records._plan import load_plan, parse_mixes
from headrace.sources import Encoded, Item, Source


class Stores:
    """Datasets below a folder, made when they are first asked for and kept for the next run."""

    def __init__(self, folder: Path, source: Path, most_images: int, log: Callable[[str], None]) -> None:
        name = f"{source.resolve().name}-{hashlib.sha1(str(source.resolve()).encode()).hexdigest()[:8]}-{most_images}"  # noqa: S324
        self.folder = folder / name
        self._source = First(open_any(source), most_images)
        self._log = log

    @property
    def images(self) -> int:
        return sum(1 for _ in self._source.items())

    @property
    def source(self) -> Source:
        return self._source

    def single(self, format_name: str) -> Path:
        """All images in one format."""
        return self._made(
            format_name.replace(":", "-"), lambda dest: headrace.build(self._source, dest, format=format_name)
        )

    def mixed(self, plan: Plan) -> Path:
        """All images as the plan says: what `build --plan` makes, without encoding anything again."""
        if len(plan.shares) == 1:
            return self.single(plan.shares[0].format)
        document = plan.to_json()
        name = hashlib.sha256(json.dumps(document["fields"], sort_keys=True).encode()).hexdigest()[:12]
        if plan.renditions > 1:
            return self._made(f"two-{name}", lambda dest: headrace.build(self._source, dest, plan=document))
        singles = {each.format: headrace.open(self.single(each.format)) for each in plan.shares}
        source = Encodings(self._source, singles, document)
        return self._made(f"mix-{name}", lambda dest: headrace.build(source, dest, plan=document, verify=False))

    def drop_mixes(self) -> None:
        """Remove what belongs to plans: the next calibration makes others."""
        for path in (*self.folder.glob("mix-*"), *self.folder.glob("two-*")):
            shutil.rmtree(path)

    def _made(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self.folder / name
        if not (path / "dataset.json").exists():
            self._log(f"building {path.name} of {self.folder.name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)
        return path


class First:
    """The first so many items of a source."""

    sequential = False

    def __init__(self, source: Source, most: int) -> None:
        self._source, self._most = source, most
        self.kind, self.classes = source.kind, source.classes

    @property
    def fields(self) -> Mapping[str, str]:
        return self._source.fields

    def items(self) -> Iterator[Item]:
        """Every k-th, so that all parts of the source are there."""
        items = list(self._source.items())
        stride = -(-len(items) // self._most)
        return iter(items[::stride])

    def load(self, item: Item) -> dict[str, object]:
        return self._source.load(item)


class Encodings(First):
    """A source whose images are already in the format that a plan gives them."""

    def __init__(self, source: First, singles: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        super().__init__(source, 1 << 60)
        self._singles = singles
        self._mixes = parse_mixes(load_plan(plan))
        self._rows = {item.key: row for row, item in enumerate(source.items())}

    def load(self, item: Item) -> dict[str, object]:
        sample = self._source.load(item)
        for name, mix in self._mixes.items():
            (wanted,) = mix.choose(item.key)
            data, rendition = self._singles[wanted].read(self._rows[item.key], name)
            sample[name] = Encoded(data, rendition.format.partition(":")[0], item.key)
        return sample
