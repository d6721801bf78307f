# SPDX-License-Identifier: Apache-2.0
"""`headrace build`: a source into a dataset."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import headrace
from headrace.cli import _batch
from headrace.cli._say import fail, say
from headrace.errors import HeadraceError
from headrace.units import bytes_text, parse_bytes

if TYPE_CHECKING:
    from headrace.building import BuildReport, Progress

Kind = Literal["auto", "folder", "classes", "segmentation", "webdataset", "parquet", "coco", "cityscapes", "dataset"]
_LINE_SECONDS = 10.0


def parse_size(text: str) -> int:
    """Read a size of at least 1 byte from the command line."""
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if size < 1:
        raise typer.BadParameter(f"a size must be at least 1 byte; got {text!r}")
    return size


def build(
    source: Annotated[str, typer.Argument(help="A folder, file, quoted glob or dataset.", show_default=False)],
    dest: Annotated[Path, typer.Argument(help="The dataset's folder, new or unfinished.", show_default=False)],
    kind: Annotated[Kind, typer.Option("--from", help="What the source is.")] = "auto",
    format_name: Annotated[
        str, typer.Option("--format", help="hri:fast, hri:dense, png, jpeg:QUALITY, webp, raw, or keep.")
    ] = "hri:dense",
    mask_format: Annotated[str | None, typer.Option(help="For masks.", show_default="as images, without loss")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Shares of formats, as `headrace plan` writes them.", show_default=False)
    ] = None,
    renditions: Annotated[
        int | None,
        typer.Option(min=1, help="Formats of the plan that each image is stored in.", show_default="the plan's"),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-j", min=0, help="Images encoded at a time; 0 for one a core.")
    ] = 0,
    shard_size: Annotated[str, typer.Option(help="Bytes of the source in a shard.")] = "256MiB",
    align: Annotated[int, typer.Option(help="Where images start in a shard; 4096 for direct I/O.")] = 64,
    on_error: Annotated[
        Literal["raise", "skip"], typer.Option(help="What a sample that cannot be stored does.")
    ] = "raise",
    split: Annotated[
        str | None,
        typer.Option(help="Take only this split, such as train.", show_default="all, with a field 'split'"),
    ] = None,
    mask_suffix: Annotated[
        str | None,
        typer.Option(
            help="What the names of masks have after those of their images, such as _mask.", show_default="detected"
        ),
    ] = None,
    apply_orientation: Annotated[
        bool, typer.Option("--apply-orientation", help="Turn images as their EXIF orientation says, without loss.")
    ] = False,
    pages: Annotated[
        Literal["one", "first"],
        typer.Option(help="Files of several pages or frames: one refuses them, first takes the first page."),
    ] = "one",
    verify: Annotated[bool, typer.Option(help="Decode each image again and compare.")] = True,
    resume: Annotated[bool, typer.Option(help="Go on with an unfinished build.")] = True,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a finished dataset.")] = False,
) -> None:
    """Build a dataset of images.

    Interrupted, even by kill -9 or a power cut, it goes on where it was when
    run again, and ends in the same bytes. The exit code is 1 if it could not
    be finished. Samples that were skipped and files that are not samples are
    named.

    \b
    headrace build photos photos.hr                     a folder, or class folders
    headrace build 'wds/*.tar' wds.hr --format keep     the files as they are
    headrace build 'wds/{000..009}.tar' wds.hr          ten archives
    headrace build coco coco.hr --format hri:fast -j 4  boxes and labels too
    headrace build photos photos.hr --split train       one of several splits
    headrace build old.hr new.hr --plan plan.json       a dataset by another plan
    """
    size = parse_size(shard_size)
    try:
        with _shown() as hook:
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
                progress=hook,
            )
    except KeyboardInterrupt:
        typer.echo("interrupted; finished shards are kept: run the same command again to go on", err=True)
        raise typer.Exit(_batch.INTERRUPTED) from None
    except (HeadraceError, OSError, ValueError) as error:
        fail(error)
        raise typer.Exit(_batch.FAILED) from None
    _tell(report)


def _tell(report: BuildReport) -> None:
    ratio = report.n_bytes / max(report.source_bytes, 1)
    kept = f", {report.kept_shards} of them from before" if report.kept_shards else ""
    if report.was_finished:
        say(
            f"nothing to do: {report.path} was built from this source with these options; "
            f"{_count(report.samples, 'sample')} in {_count(report.shards, 'shard')}"
        )
        return
    say(
        f"built {report.path}: {_count(report.samples, 'sample')} in {_count(report.shards, 'shard')}{kept}; "
        f"{bytes_text(report.source_bytes)} → {bytes_text(report.n_bytes)} (ratio {ratio:.3f}) "
        f"in {report.seconds:.1f} s, {report.samples_per_second:.1f} samples/s"
    )
    for skipped in report.skipped:
        say(f"skipped {skipped.key}: {skipped.reason}", err=True)
    if report.skipped_count:
        typer.echo(f"{report.skipped_count} samples were skipped", err=True)
    if report.ignored:
        say(f"ignored, since they are not images by their names: {'; '.join(report.ignored)}", err=True)
    for warning in report.warnings:
        say(f"warning: {warning}", err=True)
    path = shlex.quote(str(report.path))
    say(f"next: headrace.Loader({str(report.path)!r}, batch_size=64) in your code, or headrace profile {path}")


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}{'' if n == 1 else 's'}"


@contextmanager
def _shown() -> Iterator[Callable[[Progress], None]]:
    """Show progress on standard error: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    from rich import progress  # noqa: PLC0415 - slow to import

    columns: tuple[Any, ...] = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.description}"),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        row = bar.add_task("", total=None)

        def show(now: Progress) -> None:
            bar.update(row, completed=now.samples, total=now.total_samples, description=_pace(now))

        yield show


def _lines() -> Callable[[Progress], None]:
    last = time.perf_counter()

    def show(now: Progress) -> None:
        nonlocal last
        if time.perf_counter() - last >= _LINE_SECONDS:
            last = time.perf_counter()
            typer.echo(f"{now.samples} of {now.total_samples or '?'} samples, {_pace(now)}", err=True)

    return show


def _pace(now: Progress) -> str:
    left = now.seconds_left
    minutes, seconds = divmod(int(left or 0), 60)
    ending = "" if left is None else f", {minutes // 60}:{minutes % 60:02d}:{seconds:02d} left"
    return f"{now.samples_per_second:.1f}/s{ending}"
