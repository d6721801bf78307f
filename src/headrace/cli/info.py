# SPDX-License-Identifier: Apache-2.0
"""`headrace info`: what a dataset or an image holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import _batch
from headrace.cli._say import fail, say
from headrace.cli.inspect import inspect
from headrace.errors import HeadraceError
from headrace.units import bytes_text

if TYPE_CHECKING:
    from headrace.records import Dataset


def info(
    path: Annotated[Path, typer.Argument(help="Folder of a dataset, or an .hri file.", show_default=False)],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="Number of samples of a dataset to show.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Show what a dataset or an image holds.

    For a dataset: fields, formats, sizes, and its first samples. Only the index is
    read, so a large dataset takes no longer than a small one. For an .hri file:
    the same as headrace inspect.

    \b
    headrace info photos.hr
    headrace info photos.hr --json | jq .samples
    headrace info photo.hri
    """
    if path.suffix == ".hri" and not path.is_dir():
        inspect([str(path)], as_json=as_json)
        return
    from headrace import records  # noqa: PLC0415 - brings pyarrow, which other verbs do not need

    try:
        opened = records.open_dataset(path)
        summary = _summarise(opened)
        first = [_describe(opened, index) for index in range(min(rows, len(opened)))]
    except (HeadraceError, OSError) as error:
        fail(error)
        raise typer.Exit(_batch.FAILED) from None
    if as_json:
        typer.echo(json.dumps({**summary, "first": first}))
        return
    say(f"{path}: {len(opened)} samples, {bytes_text(summary['bytes'])} in {summary['shards']} shards")
    _show_fields(opened)
    if opened.classes is not None:
        names = opened.classes
        say(f"classes  {len(names)}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}")
    source = summary["source"]
    say(
        f"source   {source.get('name') or '-'} ({source.get('kind')}), "
        f"{bytes_text(source.get('bytes', 0))}; {summary['skipped']} samples skipped"
    )
    say(f"made by  {summary['writer']}; fingerprint {summary['fingerprint']}")
    for number, sample in enumerate(first):
        values = ", ".join(f"{name}={value}" for name, value in sample.items() if name != "key")
        say(f"  {number}  {sample['key']}: {values}")


def _summarise(dataset: Dataset) -> dict[str, Any]:
    manifest = dataset.manifest
    return {
        "samples": len(dataset),
        "fields": dict(dataset.fields),
        "formats": {name: dict(counts) for name, counts in dataset.formats.items()},
        "classes": dataset.classes,
        "shards": len(manifest.shards),
        "bytes": sum(shard.n_bytes for shard in manifest.shards) + manifest.index.n_bytes,
        "align": manifest.align,
        "source": dict(manifest.source),
        "options": dict(manifest.options),
        "skipped": manifest.skipped_count,
        "writer": manifest.writer,
        "fingerprint": dataset.fingerprint,
    }


def _show_fields(dataset: Dataset) -> None:
    for name, kind in dataset.fields.items():
        counts = dataset.formats.get(name, {})
        formats = ", ".join(f"{count} {format_name}" for format_name, count in counts.items())
        say(f"field    {name}: {kind}" + (f" ({formats})" if formats else ""))


def _describe(dataset: Dataset, index: int) -> dict[str, Any]:
    sample: dict[str, Any] = {"key": dataset.key(index)}
    for name, kind in dataset.fields.items():
        if kind in ("image", "mask"):
            rendition = dataset.rendition(index, name)
            size = " x ".join(map(str, rendition.shape))
            sample[name] = f"{size} {rendition.dtype}, {rendition.format}, {bytes_text(rendition.n_bytes)}"
        else:
            value = dataset.value(index, name)
            sample[name] = f"{len(value.labels)} boxes" if kind == "boxes" else _short(value)
    return sample


def _short(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = value if isinstance(value, str) else str(list(value))
    return text if len(text) <= 60 else f"{text[:59]}…"
