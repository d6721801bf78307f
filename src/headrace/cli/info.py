# SPDX-License-Identifier: Apache-2.0
"""`headrace info` and its alias `inspect`: what datasets and `.hri` images contain."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace
from headrace.cli.shared.files import find_files
from headrace.cli.shared.options import MaxPixels
from headrace.cli.shared.output import FAILED, cell, counted, say
from headrace.errors import HeadraceError
from headrace.files import read_file
from headrace.sources import is_dataset
from headrace.tensors import is_tensor
from headrace.units import bytes_text

if TYPE_CHECKING:
    from headrace.records import Dataset


def info(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET_OR_IMAGE",
            help="Datasets, .hri files, folders of .hri files, or glob patterns in quotes.",
            show_default=False,
        ),
    ],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="Number of samples to show per dataset.")] = 5,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also decode every tile of images; for datasets, use headrace verify.")
    ] = False,
    max_pixels: MaxPixels = 2**30,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of text.")] = False,
) -> None:
    """Show what a dataset or an .hri image contains.

    For a dataset: fields, formats, sizes, and its first samples. Only the index
    is read, so a large dataset takes no longer than a small one.

    For an image: shape, dtype, mode and metadata. The checksum of the header is
    always checked. With --verify, tiles are decoded too, a few at a time, so
    large images need little memory.

    If a dataset or file is damaged, it is reported and the exit code is 1.
    `headrace info` and `headrace inspect` are the same command.

    \b
    headrace info photos.hr
    headrace info photos.hr --json | jq .samples
    headrace info photo.hri
    headrace info photos-hri --verify
    """
    failed = False
    images: list[dict[str, Any]] = []
    for path, problem in _expand(paths):
        try:
            if problem is not None:
                raise FileNotFoundError(problem)
            if is_dataset(path):
                _show_dataset(path, rows, as_json=as_json)
            else:
                images.append(_describe_image(path, verify=verify, max_pixels=max_pixels))
                if as_json:
                    typer.echo(json.dumps(images[-1]))
        except (HeadraceError, OSError, ValueError) as error:
            failed = True
            say(f"failed {path}: {type(error).__name__}: {error}", err=True)
    if images and not as_json:
        _show_images(images)
    if failed:
        raise typer.Exit(FAILED)


def _expand(paths: list[str]) -> list[tuple[Path, str | None]]:
    """Return datasets and image files, or paths with a problem."""
    expanded: list[tuple[Path, str | None]] = []
    for text in paths:
        path = Path(text)
        if is_dataset(path):
            expanded.append((path, None))
            continue
        for file, base in find_files([text], {".hri"}):
            problem = base if isinstance(base, str) else None
            if problem is not None and path.is_dir():
                problem = "must be a dataset or contain .hri files; the folder has neither dataset.json nor .hri files"
            expanded.append((file, problem))
    return expanded


def _show_dataset(path: Path, rows: int, *, as_json: bool) -> None:
    from headrace import records  # noqa: PLC0415 - imports pyarrow, which images do not need

    dataset = records.open_dataset(path)
    manifest = dataset.manifest
    summary = _summarize(dataset)
    first = [_describe_sample(dataset, index) for index in range(min(rows, len(dataset)))]
    if as_json:
        typer.echo(json.dumps({**summary, "first": first}))
        return
    say(
        f"{path}: {counted(len(dataset), 'sample')}, {bytes_text(summary['bytes'])} in "
        f"{counted(summary['shards'], 'shard')}"
    )
    for name, kind in dataset.fields.items():
        formats = ", ".join(f"{count} {format_name}" for format_name, count in dataset.formats.get(name, {}).items())
        say(f"field    {name}: {kind}" + (f" ({formats})" if formats else ""))
    if dataset.classes is not None:
        names = dataset.classes
        say(f"classes  {len(names)}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}")
    source = summary["source"]
    say(
        f"source   {source.get('name') or '-'} ({source.get('kind')}), "
        f"{bytes_text(source.get('bytes', 0))}; {counted(summary['skipped'], 'sample')} skipped"
    )
    if summary["version"] > 1:
        change = f"{manifest.change['action']} {counted(manifest.change['samples'], 'sample')}"
        dropped = f"; {counted(summary['dropped'], 'sample')} dropped so far" if summary["dropped"] else ""
        say(f"version  {summary['version']}: {change}{dropped}; headrace log lists all")
    say(f"made by  {summary['writer']}; fingerprint {summary['fingerprint']}")
    for number, sample in enumerate(first):
        values = ", ".join(f"{name}={value}" for name, value in sample.items() if name != "key")
        say(f"  {number}  {sample['key']}: {values}")


def _summarize(dataset: Dataset) -> dict[str, Any]:
    manifest = dataset.manifest
    return {
        "samples": len(dataset),
        "fields": dict(dataset.fields),
        "formats": {name: dict(counts) for name, counts in dataset.formats.items()},
        "classes": dataset.classes,
        "shards": len(manifest.shards),
        "bytes": sum(shard.n_bytes for shard in manifest.shards) + manifest.index_bytes,
        "version": manifest.number,
        "dropped": manifest.rows - manifest.samples,
        "align": manifest.align,
        "source": dict(manifest.source),
        "options": dict(manifest.options),
        "skipped": manifest.skipped_count,
        "writer": manifest.writer,
        "fingerprint": dataset.fingerprint,
    }


def _describe_sample(dataset: Dataset, index: int) -> dict[str, Any]:
    sample: dict[str, Any] = {"key": dataset.key(index)}
    for name, kind in dataset.fields.items():
        if kind in ("image", "mask"):
            rendition = dataset.rendition(index, name)
            size = " x ".join(map(str, rendition.shape))
            sample[name] = f"{size} {rendition.dtype}, {rendition.format}, {bytes_text(rendition.n_bytes)}"
        elif is_tensor(kind):
            stored = dataset.tensor(index, name)
            size = " x ".join(map(str, stored.type.shape))
            sample[name] = f"{size} {stored.type.dtype}, {bytes_text(len(stored.data))}"
        else:
            value = dataset.value(index, name)
            sample[name] = f"{len(value.labels)} boxes" if kind == "boxes" else _shortened(value)
    return sample


def _shortened(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = value if isinstance(value, str) else str(list(value))
    return text if len(text) <= 60 else f"{text[:59]}…"


def _describe_image(path: Path, *, verify: bool, max_pixels: int) -> dict[str, Any]:
    encoded = read_file(path)
    header = headrace.inspect(encoded)
    if verify:
        headrace.codec.verify(encoded, max_pixels=max_pixels, threads=0)
    raw_bytes = math.prod(header.shape) * header.dtype.itemsize
    return {
        "file": str(path),
        "shape": list(header.shape),
        "dtype": header.dtype.name,
        "mode": header.mode,
        "tile_shape": list(header.tile_shape),
        "n_bytes": header.n_bytes,
        "bits_per_pixel": round(8 * header.n_bytes / (header.height * header.width), 3),
        "ratio_to_raw": round(header.n_bytes / raw_bytes, 4),
        "metadata": {key: len(value) for key, value in header.metadata.items()},
    }


def _show_images(images: list[dict[str, Any]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415 - slow to import

    table = Table("file", "shape", "dtype", "mode", "tile", "bytes", "bits/pixel", "of raw", "metadata", box=None)
    for image in images:
        table.add_row(
            cell(image["file"]),
            " x ".join(map(str, image["shape"])),
            image["dtype"],
            image["mode"],
            " x ".join(map(str, image["tile_shape"])),
            str(image["n_bytes"]),
            f"{image['bits_per_pixel']:.2f}",
            f"{image['ratio_to_raw']:.3f}",
            cell(", ".join(f"{key} ({bytes_text(size)})" for key, size in image["metadata"].items())),
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=1000)  # in a pipe or file, nothing is cut off
    console.print(table)
