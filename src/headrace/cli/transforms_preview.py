# SPDX-License-Identifier: Apache-2.0
"""`headrace transforms-preview`: a picture of what a recipe makes of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared import options
from headrace.cli.shared.output import counted, exit_on_error, say

if TYPE_CHECKING:
    from headrace.transforms.looking.preview import Sample


def transforms_preview(
    source: Annotated[
        Path, typer.Argument(metavar="DATASET_OR_IMAGE", help="A dataset, or an image file.", show_default=False)
    ],
    *,
    recipe: Annotated[
        Path,
        typer.Option(
            help="JSON file: a recipe (`loader.recipe`), or a list of transforms (spec/recipe.md).", show_default=False
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG file to write.")] = Path("preview.png"),
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Number of samples of the dataset to show.")] = 4,
    start: Annotated[int, typer.Option(min=0, help="Number of the first sample to show.")] = 0,
    draws: Annotated[int, typer.Option(min=1, max=1000, help="Number of epochs to show of each sample.")] = 6,
    epoch: Annotated[int, typer.Option(min=0, help="The first epoch to show.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the augmentations.")] = 0,
    cell: Annotated[int, typer.Option(min=16, max=4096, help="Side of each image in the picture, in pixels.")] = 160,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what the transforms of a recipe make of images, in one picture.

    Each row shows a sample: as it is stored, then as training sees it in one
    epoch after the other, with all its views and its boxes. With the seed of
    a training run, the draws are those of that run. Transforms of batches,
    such as mixup, are not shown.

    \b
    headrace transforms-preview photos.hr --recipe recipe.json -o preview.png
    headrace transforms-preview cat.jpg --recipe recipe.json --draws 12
    """
    with exit_on_error():
        from headrace.transforms.looking import preview  # noqa: PLC0415 - brings NumPy, which other verbs do not need

        if output.exists() and not force:
            raise FileExistsError(f"{output} exists; use --force to overwrite it, or choose another --output")
        listed = preview.parse_transforms(recipe.read_bytes())
        shown = list(_samples(source, start, samples))
        picture = preview.make_preview(listed, shown, draws=draws, seed=seed, epoch=epoch, cell=cell)
        picture.save(output, "PNG")
        if not quiet:
            say(f"wrote {output}: {counted(len(shown), 'sample')}, {counted(draws, 'draw')} each")


def _samples(source: Path, start: int, count: int) -> Iterator[Sample]:
    from headrace import formats  # noqa: PLC0415 - as above
    from headrace.transforms.looking.preview import Sample  # noqa: PLC0415

    if not source.is_dir():
        yield Sample(formats.decode(source.read_bytes(), color="RGB"))
        return
    from headrace import records  # noqa: PLC0415 - imports pyarrow

    dataset = records.open_dataset(source)
    image = next((name for name, kind in dataset.fields.items() if kind == "image"), None)
    boxes = next((name for name, kind in dataset.fields.items() if kind == "boxes"), None)
    if image is None:
        raise ValueError(f"{source} must have a field of images; its fields are {', '.join(dataset.fields)}")
    if start >= len(dataset):
        raise ValueError(f"--start must be below the number of samples, {len(dataset)}; got {start}")
    for row in range(start, min(start + count, len(dataset))):
        sample = dataset[row]
        yield Sample(sample[image], row, sample[boxes] if boxes else None)
