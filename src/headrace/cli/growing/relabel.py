# SPDX-License-Identifier: Apache-2.0
"""`headrace relabel`: a version of a dataset in which samples have other labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.growing._shared import Growing, Keys, Rows, chosen_samples, show_report
from headrace.cli.shared.options import Json, Quiet
from headrace.cli.shared.output import exit_on_error


def relabel(
    dataset: Growing,
    keys: Keys = None,
    to: Annotated[
        str | None, typer.Option(help="New value: the name of a class, a number or a text.", show_default=False)
    ] = None,
    field: Annotated[str, typer.Option(help="Field to change, of type int64, float32 or str.")] = "label",
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            help="Text file with one key per line; without --to, a tab and the new value follow each key.",
            show_default=False,
        ),
    ] = None,
    rows: Rows = None,
    new_class: Annotated[
        bool, typer.Option("--new-class", help="Append the name to the classes if it is new.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a version of a dataset in which some samples have another label.

    Earlier versions keep theirs, and no image is moved.

    \b
    headrace relabel photos.hr cat/0017.jpg --to dog
    headrace relabel photos.hr --keys corrected.tsv      key, tab, new label
    headrace relabel photos.hr --rows 100:200 --to 3
    """
    from headrace.building import growing  # noqa: PLC0415 - imports pyarrow, which other verbs do not need
    from headrace.records import Manifest  # noqa: PLC0415

    with exit_on_error():
        chosen: Any = chosen_samples(keys, key_file, rows)
        values: Any = to
        if to is None and key_file is None:
            raise typer.BadParameter("give the new value with --to, or a file with keys and values with --keys")
        if to is None:
            pairs = [line.rpartition("\t")[::2] for line in chosen]
            if any(not key for key, _ in pairs):
                raise typer.BadParameter(
                    f"each line of {key_file} must be a key, a tab and the new value, or give --to"
                )
            chosen, values = [key for key, _ in pairs], [value for _, value in pairs]
        manifest = Manifest.load(dataset)
        kind = next((each.type for each in manifest.fields if each.name == field), "")
        names = manifest.classes if field == "label" else None
        given = values if isinstance(values, list) else [values]
        read = [_value(text, kind, has_names=names is not None, names=names or ()) for text in given]
        report = growing.relabel(
            dataset,
            chosen,
            read if isinstance(values, list) else read[0],
            field=field,
            new_classes=new_class,
        )
    show_report(report, "relabeled", as_json=as_json, quiet=quiet)


def _value(text: str, kind: str, *, has_names: bool, names: tuple[str, ...]) -> Any:
    """Read a value from the command line; a class name is left as it is."""
    if kind not in ("int64", "float32") or text in names:
        return text
    try:
        return int(text) if kind == "int64" else float(text)
    except ValueError:
        if has_names:
            return text  # perhaps a new class
        raise typer.BadParameter(f"the value must be a number, because the field is {kind}; got {text!r}") from None
