# SPDX-License-Identifier: Apache-2.0
"""`Report`: the result of a profile, and its files in a folder (spec/report.md)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.documents import DocumentReader, to_json
from headrace.errors import InvalidReport, MissingExtra
from headrace.files import write_atomic
from headrace.planning import Calibration, KnownCosts
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._remedies import next_step
from headrace.profiling.judging._remedies_stored import run_machine
from headrace.profiling.judging._verdict import Verdict, judge
from headrace.profiling.report._text import render_text

VERSION = 1
JSON_NAME = "report.json"
HTML_NAME = "index.html"
_KIND = "report"


@dataclass(frozen=True, repr=False)
class Report:
    """A profile's measurements, and the verdict that follows from them."""

    measurements: Measurements
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", judge(self.measurements))

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object. The verdict is for other readers: `from_json` computes it again."""
        return {
            "headrace": _KIND,
            "version": VERSION,
            "measurements": to_json(self.measurements, "measurements", InvalidReport),
            "verdict": to_json(self.verdict, "verdict", InvalidReport),
        }

    @classmethod
    def from_json(cls, tree: Any) -> Report:
        """Read a report from a JSON object; InvalidReport names what is wrong."""
        if not isinstance(tree, Mapping) or tree.get("headrace") != _KIND:
            raise InvalidReport("not a report of a profile; give a file that `headrace profile` wrote")
        if tree.get("version") != VERSION:
            raise InvalidReport(
                f"the version of a report must be {VERSION}; got {tree.get('version')!r}; "
                f"use the Headrace that wrote it, or profile again"
            )
        return cls(DocumentReader(InvalidReport).read(Measurements, tree.get("measurements"), "measurements"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read a report from its folder, or from its JSON file."""
        file = Path(path)
        file = file / JSON_NAME if file.is_dir() else file
        try:
            return cls.from_json(json.loads(file.read_bytes()))
        except InvalidReport as error:
            raise InvalidReport(f"{file}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidReport(f"a report must be a JSON file; {file}: {error}") from None

    @property
    def costs(self) -> KnownCosts:
        """What a plan needs: costs, the machine as the run used it, and the step. ValueError if they are not valid."""
        found = self.measurements
        machine = run_machine(found)
        # If the storage that the run read from was not measured, the plan measures it.
        is_known = not found.reads_from_storage or math.isfinite(machine.storage_rate)
        return KnownCosts(
            None if found.calibration is None else Calibration.from_json(found.calibration),
            machine if is_known else None,
            found.differential.step_seconds if found.differential else None,
        )

    @staticmethod
    def require_extras() -> None:
        """Raise MissingExtra if the page cannot be made; call it before a long measurement."""
        from headrace.profiling.report._html import find_template  # noqa: PLC0415 - needs Jinja2, which is an extra

        find_template()

    def next_step(self, folder: str | os.PathLike[str] | None = None) -> str | None:
        """Return the next command or change to the code; None if there is nothing to do.

        `folder` is where the report was saved, if it was.
        """
        saved = None if folder is None else os.fspath(folder)
        return next_step(self.measurements, self.verdict.remedies, saved)

    def to_html(self) -> str:
        """Return the page that `save` writes. Needs the extra `report`."""
        from headrace.profiling.report._html import render_page  # noqa: PLC0415 - needs Jinja2, which is an extra

        return render_page(self.measurements, self.verdict)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `report.json` and the page `index.html` to a folder, and return the page's path.

        The JSON is written first: it is there even if the extra `report` is missing.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        write_atomic(place / JSON_NAME, json.dumps(self.to_json(), indent=2, allow_nan=False).encode() + b"\n")
        write_atomic(place / HTML_NAME, self.to_html().encode())
        return place / HTML_NAME

    def show(self, console: Console | None = None) -> None:
        """Print the report to a Rich console; by default to standard output."""
        (console or Console()).print(render_text(self.measurements, self.verdict), crop=False)

    def __str__(self) -> str:
        return self.verdict.sentence

    def __repr__(self) -> str:
        return f"Report({self.measurements.source.name!r}: {self.verdict.sentence})"

    def _repr_html_(self) -> str | None:
        """Show the page in a notebook, in a sandboxed frame."""
        try:
            page = self.to_html()
        except MissingExtra:
            return None  # a notebook then shows `repr`
        frame = "width:100%;height:900px;border:0"
        return f'<iframe title="Headrace profile" sandbox style="{frame}" srcdoc="{escape(page)}"></iframe>'
