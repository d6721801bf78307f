# SPDX-License-Identifier: Apache-2.0
"""`headrace build`: a dataset from a source."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import headrace
from headrace.cli.shared.options import Json, Quiet, Workers, parse_size
from headrace.cli.shared.output import counted, exit_on_error, say, shown_progress
from headrace.units import bytes_text

if TYPE_CHECKING:
    from headrace.building import BuildReport, Progress

Kind = Literal[
    "auto",
    "folder",
    "classes",
    "segmentation",
    "webdataset",
    "parquet",
    "coco",
    "cityscapes",
    "dataset",
    "npy",
    "dicom",
    "nifti",
    "tiff",
    "yolo",
    "huggingface",
]


def build(
    source: Annotated[
        str, typer.Argument(help="A folder, a file, a glob pattern in quotes, or a dataset.", show_default=False)
    ],
    dest: Annotated[
        Path, typer.Argument(help="Folder of the dataset: a new one, or an unfinished build.", show_default=False)
    ],
    kind: Annotated[Kind, typer.Option("--from", help="Layout of the source; auto detects it.")] = "auto",
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the images: hri:fast, hri:dense, png, jpeg:QUALITY, webp, raw, or keep to store the "
            "files as they are.",
        ),
    ] = "hri:dense",
    mask_format: Annotated[
        str | None,
        typer.Option(help="Format of the masks.", show_default="that of the images if lossless, else hri:dense"),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Plan with the share of each format, from `headrace plan`.", show_default=False)
    ] = None,
    renditions: Annotated[
        int | None,
        typer.Option(min=1, help="Number of formats of the plan to store each image in.", show_default="from the plan"),
    ] = None,
    workers: Workers = 0,
    shard_size: Annotated[
        str, typer.Option(help="Start a new shard after this many bytes of the source, such as 256MiB or 1GB.")
    ] = "256MiB",
    align: Annotated[
        int,
        typer.Option(help="Start each image at a multiple of this many bytes, a power of two; 4096 allows direct I/O."),
    ] = 64,
    on_error: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="What to do if a sample cannot be stored: raise stops the build, skip omits the sample."),
    ] = "raise",
    split: Annotated[
        str | None,
        typer.Option(help="Build only this split, such as train.", show_default="all, with a field 'split'"),
    ] = None,
    mask_suffix: Annotated[
        str | None,
        typer.Option(help="Text that mask names have after the image name, such as _mask.", show_default="detected"),
    ] = None,
    apply_orientation: Annotated[
        bool, typer.Option("--apply-orientation", help="Rotate and flip the pixels as the EXIF orientation says.")
    ] = False,
    pages: Annotated[
        Literal["one", "first"],
        typer.Option(
            help="What to do with files of several pages or frames: one refuses them, first takes the first page."
        ),
    ] = "one",
    verify: Annotated[bool, typer.Option(help="Decode each image after encoding and compare the pixels.")] = True,
    resume: Annotated[bool, typer.Option(help="Continue an unfinished build instead of starting again.")] = True,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace the dataset at DEST if it is finished.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build a dataset from images.

    An interrupted build continues when the same command is run again, even after
    kill -9 or a power cut, and makes the same bytes. Skipped samples and ignored
    files are reported. If the build cannot be finished, the exit code is 1.

    \b
    headrace build photos photos.hr                     a folder, or class folders
    headrace build 'wds/*.tar' wds.hr --format keep     keep the files as they are
    headrace build 'wds/{000..009}.tar' wds.hr          ten archives
    headrace build coco coco.hr --format hri:fast -j 4  with boxes and labels
    headrace build photos photos.hr --split train       one of several splits
    headrace build old.hr new.hr --plan plan.json       a dataset in other formats
    """
    size = parse_size(shard_size)
    with (
        exit_on_error("interrupted; finished shards are kept: run the same command again to continue"),
        shown_progress(quiet=quiet) as update,
    ):
        report = headrace.build(
            source,
            dest,
            kind=kind,
            format=format_name,
            mask_format=mask_format,
            plan=plan,
            renditions=renditions,
            workers=workers or None,
            resume=resume,
            force=force,
            verify=verify,
            on_error=on_error,
            split=split,
            mask_suffix=mask_suffix,
            apply_orientation=apply_orientation,
            pages=pages,
            shard_size=size,
            align=align,
            progress=None if quiet else progress_hook(update),
        )
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(report), "path": str(report.path)}))
    else:
        _show_report(report, quiet=quiet)


def _show_report(report: BuildReport, *, quiet: bool) -> None:
    size = f"{counted(report.samples, 'sample')} in {counted(report.shards, 'shard')}"
    if not quiet and report.was_finished:
        say(f"nothing to do: {report.path} is already built from this source with these options; {size}")
    elif not quiet:
        ratio = report.n_bytes / max(report.source_bytes, 1)
        kept = f", {report.kept_shards} of them from an earlier run" if report.kept_shards else ""
        say(
            f"built {report.path}: {size}{kept}; {bytes_text(report.source_bytes)} → {bytes_text(report.n_bytes)} "
            f"(ratio {ratio:.3f}) in {report.seconds:.1f} s, {report.samples_per_second:.1f} samples/s"
        )
    if report.was_finished:
        return
    for skipped in report.skipped:
        say(f"skipped {skipped.key}: {skipped.reason}", err=True)
    if report.skipped_count:
        say(f"skipped {counted(report.skipped_count, 'sample')} in total", err=True)
    if quiet:
        return
    if report.ignored:
        say(f"ignored files without an image suffix: {'; '.join(report.ignored)}", err=True)
    for warning in report.warnings:
        say(f"warning: {warning}", err=True)
    path = shlex.quote(str(report.path))
    say(f"next: headrace.Loader({str(report.path)!r}, batch_size=64) in your code, or headrace profile {path}")


def progress_hook(update: Callable[..., None]) -> Callable[[Progress], None]:
    """Return a function that shows the progress of a build."""
    return lambda now: update(completed=now.samples, total=now.total_samples, description=_rate(now))


def _rate(now: Progress) -> str:
    """Return the speed of a build and the time that is left."""
    left = now.seconds_left
    minutes, seconds = divmod(int(left or 0), 60)
    remaining = "" if left is None else f", {minutes // 60}:{minutes % 60:02d}:{seconds:02d} left"
    return f"{now.samples_per_second:.1f} samples/s{remaining}"
