# SPDX-License-Identifier: Apache-2.0
"""`headrace drop`: a version of a dataset without some samples."""

from __future__ import annotations

from headrace.cli.growing._shared import Growing, KeyFile, Keys, Rows, chosen_samples, show_report
from headrace.cli.shared.options import Json, Quiet
from headrace.cli.shared.output import exit_on_error


def drop(
    dataset: Growing,
    keys: Keys = None,
    key_file: KeyFile = None,
    rows: Rows = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a version of a dataset without some samples.

    Earlier versions still have them, and no image is moved or removed. To free
    the space, merge the dataset into a new one, or remove the earlier versions
    with headrace gc, which removes shards without samples.

    \b
    headrace drop photos.hr cat/0017.jpg cat/0018.jpg
    headrace drop photos.hr --keys duplicates.txt
    headrace drop photos.hr --rows 100:200
    """
    from headrace.building import growing  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    with exit_on_error():
        report = growing.drop(dataset, chosen_samples(keys, key_file, rows))
    show_report(report, "dropped", as_json=as_json, quiet=quiet)
