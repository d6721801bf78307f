# SPDX-License-Identifier: Apache-2.0
"""Render the committed results as pages and charts: `python benchmarks/render.py [--check]`.

A page may hold `<!-- results:NAME -->` and `<!-- /results -->`; the text between them is replaced. The pages in
docs/benchmarks and the charts in docs/charts are generated as a whole. With `--check` nothing is written, and a file
that is not current is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from typing import TYPE_CHECKING, Any

from benchmarks import results
from benchmarks._build import report as build
from benchmarks._codec import png as png_files
from benchmarks._codec import report as codec
from benchmarks._kernels import report as kernels
from benchmarks._loaders import report as loaders
from benchmarks._offload import report as offload
from benchmarks._plan import report as plan
from benchmarks._transforms import report as transforms
from benchmarks.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.tables import Table

PAGES = ("README.md", "docs/benchmarks.md", "docs/concepts/gpu.md")

_BLOCK = re.compile(r"(<!-- results:(?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- /results -->)", re.DOTALL)

Document = dict[str, Any]


def _block(name: str, table: Callable[[Document], Table], *, brief: bool = False) -> Callable[[Path], str]:
    """Return a renderer of one table with its provenance; a brief one omits the command, which the detail page has."""

    def render_block(folder: Path) -> str:
        document = results.read(folder / f"{name}.json")
        brief_origin = f"{document['machine']['cpu']}, commit {document['headrace']['commit']}."
        return f"{table(document).markdown()}\n\n{brief_origin if brief else results.provenance(document)}"

    return render_block


def _kernels(folder: Path) -> str:
    document = results.read(folder / "kernels.json")
    run = f"`{document['command']}` at commit {document['commit']}, with Triton {document['libraries']['triton']}."
    return f"{kernels.ceiling_table(document).markdown()}\n\n{run}"


def _losses(folder: Path) -> str:
    """List what was measured to be better than Headrace, relative to the best of ours."""
    found = codec.losses(results.read(folder / "codec.json")) + loaders.losses(results.read(folder / "loaders.json"))
    return "\n".join(f"- {loss}." for loss in found)


_SUMMARIES: Mapping[str, Callable[[Document], Table]] = {
    "codec": codec.summary_table,
    "loaders": loaders.summary_table,
    "plan": lambda document: plan.summary_table(document["mix"]),
    "offload": offload.gain_table,
}
BLOCKS: Mapping[str, Callable[[Path], str]] = {
    **{name: _block(name, table) for name, table in _SUMMARIES.items()},
    **{f"{name}-brief": _block(name, table, brief=True) for name, table in _SUMMARIES.items()},
    "kernels": _kernels,
    "losses": _losses,
}


def render(text: str, folder: Path) -> str:
    """Return the page with every block rendered from the results in `folder`."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise ValueError(f"results:NAME must be one of {', '.join(BLOCKS)}; got {name}")
        return f"{match[1]}{BLOCKS[name](folder)}\n{match[4]}"

    return _BLOCK.sub(block, text)


def generated(folder: Path) -> dict[str, str]:
    """Return the generated pages and charts, by their paths in the repository."""
    # Augmentations have no page until they are measured.
    named = [name for name in _TABLES if name != "transforms" or (folder / f"{name}.json").is_file()]
    documents = {name: results.read(folder / f"{name}.json") for name in named}
    charts = {
        "codec": codec.decode_chart(documents["codec"]["sets"][0]),
        "offload": offload.gain_chart(documents["offload"]),
        **{f"loaders-{case['name']}": loaders.case_chart(case) for case in documents["loaders"]["cases"]},
    }
    files = {f"docs/charts/{name}.svg": chart for name, chart in charts.items()}
    for name, document in documents.items():
        files[f"docs/benchmarks/{name}.md"] = _page(
            name, document, [chart for chart in charts if chart.startswith(name)]
        )
    return files


def _codec_tables(document: Document) -> Iterable[Table]:
    sets = document["sets"]
    yield codec.summary_table(document)
    yield from (codec.set_table(measured) for measured in sets)
    yield from (codec.region_table(measured) for measured in sets if measured["regions"])
    yield from (codec.thread_table(measured) for measured in sets if measured["threads"])
    for measured in sets:
        yield from png_files.tables(measured)


def _loader_tables(document: Document) -> Iterable[Table]:
    for case in document["cases"]:
        for workers in sorted({row["workers"] for row in case["rows"]}, reverse=True):
            yield loaders.case_table(case, workers)


def _offload_tables(document: Document) -> Iterable[Table]:
    yield offload.gain_table(document)
    if document["saving"]:
        yield offload.saving_table(document)


_TABLES: Mapping[str, tuple[str, str, Callable[[Document], Iterable[Table]]]] = {
    "codec": ("The codec and its peers", codec.METHOD, _codec_tables),
    "loaders": ("The loader and its peers", loaders.METHOD, _loader_tables),
    "build": ("Building datasets", build.METHOD, lambda document: [build.table(document)]),
    "plan": ("Plans and what they predict", plan.METHOD, plan.tables),
    "offload": ("Offload workers", offload.METHOD, _offload_tables),
    "transforms": ("Augmentations and their peers", transforms.METHOD, transforms.tables),
}
"""For each result: the title of its page, how it was measured, and its tables."""


def _page(name: str, document: Document, charts: Sequence[str]) -> str:
    title, method, tables = _TABLES[name]
    parts = [
        f"<!-- Generated by benchmarks/render.py from benchmarks/results/{name}.json; do not edit. -->",
        f"# {title}",
        results.provenance(document),
        *([document["note"]] if "note" in document else []),
        *([loaders.versions(document)] if name == "loaders" else []),
        "## Method",
        method.rstrip(),
        "## Results",
        *(f"![{chart}](../charts/{chart}.svg)" for chart in charts),
    ]
    for table in tables(document):
        parts += [f"### {table.title}", table.markdown()]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Render all pages and charts, or check that they are current."""
    rendered = {page: render((ROOT / page).read_text(encoding="utf-8"), results.FOLDER) for page in PAGES}
    stale = []
    for name, after in (rendered | generated(results.FOLDER)).items():
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
