# SPDX-License-Identifier: Apache-2.0
"""Render the committed results into the pages that show them: `python benchmarks/render.py [--check]`.

A page holds `<!-- results:NAME -->` and `<!-- /results -->`; what stands between them is replaced. No figure in a
page is written by hand. Charts are files of their own in docs/charts. With `--check` nothing is written, and a page
or chart that is not current is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from typing import TYPE_CHECKING, Any

from benchmarks import results
from benchmarks._codec import report
from benchmarks._kernels import report as kernel_report
from benchmarks._loaders import chart
from benchmarks._loaders import report as loader_report
from benchmarks._plan import report as plan_report
from benchmarks._prongs import report as prongs_report
from benchmarks.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAGES = ("README.md", "docs/benchmarks.md", "docs/concepts/accelerator.md")

_BLOCK = re.compile(r"(<!-- results:(?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- /results -->)", re.DOTALL)


def codec_summary(folder: Path) -> str:
    """The two modes beside PNG on every set, then every codec on the first one."""
    document = results.read(folder / "codec.json")
    first = report.set_table(document["sets"][0])
    return "\n\n".join(
        [
            report.summary_table(document).markdown(),
            report.provenance(document),
            f"All codecs on {first.title}:",
            first.markdown(),
        ]
    )


def codec_sets(folder: Path) -> str:
    """Every codec on every set, then regions and threads."""
    document = results.read(folder / "codec.json")
    parts = [report.provenance(document)]
    tables = [report.set_table(measured) for measured in document["sets"]]
    tables += [report.region_table(measured) for measured in document["sets"] if measured["regions"]]
    tables += [report.thread_table(measured) for measured in document["sets"] if measured["threads"]]
    for table in tables:
        parts += [f"### {table.title}", table.markdown()]
    return "\n\n".join(parts)


def loaders_summary(folder: Path) -> str:
    """What an image costs in CPU time beside the loaders that matter most."""
    document = results.read(folder / "loaders.json")
    return "\n\n".join([loader_report.summary_table(document).markdown(), loader_report.provenance(document)])


def loaders_cases(folder: Path) -> str:
    """Every loader on every case, with a chart each."""
    document = results.read(folder / "loaders.json")
    parts = [loader_report.provenance(document)]
    for case in document["cases"]:
        parts += [f"### {case['name']}", f"![{case['name']}: CPU time an image](charts/{_chart_name(case)})"]
        for workers in sorted({row["workers"] for row in case["rows"]}, reverse=True):
            table = loader_report.case_table(case, workers)
            parts += [f"{table.title}:", table.markdown()]
    return "\n\n".join(parts)


def kernels_ceilings(folder: Path) -> str:
    """What the compiled kernels could decode at most, beside what a bus delivers."""
    document = results.read(folder / "kernels.json")
    run = f"`{document['command']}` at commit {document['commit']}, with Triton {document['libraries']['triton']}."
    return f"{kernel_report.ceiling_table(document).markdown()}\n\n{run}"


# Runs of `benchmarks/plan.py`: PNG, whose reads are large, on faster storage than JPEG.
_PLANS = ("plan.json", "plan-jpeg.json")


def plan_summary(folder: Path) -> str:
    """What plans come to, and two renditions while storage changes."""
    document = plan_report.joined([results.read(folder / name) for name in _PLANS])
    changing = plan_report.adaptive_table(document["adaptive"])
    return "\n\n".join(
        [
            plan_report.summary_table(document["mix"]).markdown(),
            f"{changing.title}:",
            changing.markdown(),
            plan_report.provenance(document),
        ]
    )


def plan_cells(folder: Path) -> str:
    """Plans beside what happened: every environment, then what it comes to, and the other parts."""
    document = plan_report.joined([results.read(folder / name) for name in _PLANS])
    parts = [plan_report.provenance(document)]
    for table in plan_report.tables(document):
        parts += [f"### {table.title}", table.markdown()]
    return "\n\n".join(parts)


def prongs_summary(folder: Path) -> str:
    """What two prongs make of near workers of several speeds."""
    runs, rows = _prongs(folder)
    shown = [run for run in runs if any(row["trainer"] == "none" for row in run["rows"])]
    return "\n\n".join([prongs_report.gains(rows).markdown(), prongs_report.origin(shown)])


def prongs_cells(folder: Path) -> str:
    """Two prongs beside what they are held against, then every cell."""
    runs, rows = _prongs(folder)
    parts = [prongs_report.provenance(runs), prongs_report.bars(rows).markdown()]
    parts += prongs_spared(folder)
    for table in prongs_report.tables(rows):
        parts += [f"### {table.title}", table.markdown()]
    return "\n\n".join(parts)


def prongs_spared(folder: Path) -> list[str]:
    """What a near worker spares the host beside a slow trainer."""
    runs = [results.read(path) for path in sorted(folder.glob("spared-*.json"))]
    table = prongs_report.spared([row for run in runs for row in run["rows"]])
    measured = ", ".join(f"`{run['command']}` at commit {run['commit']}" for run in runs)
    return [f"### {table.title}", table.markdown(), f"Measured with {measured}."] if runs else []


def _prongs(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Runs of `benchmarks/prongs.py`, each of some sources and near workers."""
    runs = [results.read(path) for path in sorted(folder.glob("prongs-*.json"))]
    return runs, [row for run in runs for row in run["rows"]]


RENDERERS: Mapping[str, Callable[[Path], str]] = {
    "codec": codec_summary,
    "codec-sets": codec_sets,
    "loaders": loaders_summary,
    "loaders-cases": loaders_cases,
    "kernels": kernels_ceilings,
    "plan": plan_summary,
    "plan-cells": plan_cells,
    "prongs": prongs_summary,
    "prongs-cells": prongs_cells,
}


def charts(folder: Path) -> dict[str, str]:
    """The charts by their place in the project; none as long as the loaders were not measured."""
    path = folder / "loaders.json"
    if not path.exists():
        return {}
    return {f"docs/charts/{_chart_name(case)}": chart.svg(case) for case in results.read(path)["cases"]}


def _chart_name(case: Mapping[str, Any]) -> str:
    return f"loaders-{case['name']}.svg"


def render(text: str, folder: Path) -> str:
    """The page with every block made anew from the results in `folder`."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in RENDERERS:
            raise ValueError(f"nothing renders results:{name}: choose from {', '.join(RENDERERS)}")
        return f"{match[1]}{RENDERERS[name](folder)}\n{match[4]}"

    return _BLOCK.sub(block, text)


def main(arguments: list[str]) -> int:
    """Render all pages and charts, or check that they are current."""
    rendered = {page: render((ROOT / page).read_text(encoding="utf-8"), results.FOLDER) for page in PAGES}
    stale = []
    for name, after in (rendered | charts(results.FOLDER)).items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == after:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(after, encoding="utf-8")
            print(f"rendered {name}")
    if stale and "--check" in arguments:
        print(f"not current: {', '.join(stale)}; run `python benchmarks/render.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")
