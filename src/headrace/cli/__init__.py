# SPDX-License-Identifier: Apache-2.0
"""The command line: `headrace VERB …`, one thin file per verb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from headrace.cli import (
    build,
    decode,
    encode,
    env,
    extract,
    info,
    offload,
    plan,
    profile,
    size,
    transforms_preview,
    verify,
)
from headrace.cli.growing import add, drop, gc, log, merge, relabel

__all__ = ["app", "main"]

app = typer.Typer(
    name="headrace",
    help="Load images for training vision models as fast as a GPU can use them, without changing a pixel.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Diagnose": (profile.profile, plan.plan, size.size, env.env),
    "Datasets": (
        build.build,
        info.info,
        verify.verify,
        extract.extract,
        transforms_preview.transforms_preview,
    ),
    "Growing datasets": (add.add, drop.drop, relabel.relabel, merge.merge, log.log, gc.gc),
    "Images": (encode.encode, decode.decode),
    "Advanced": (offload.offload,),
}
for _panel, _verbs in _PANELS.items():
    for _verb in _verbs:
        app.command(rich_help_panel=_panel)(_verb)
app.command("inspect", rich_help_panel="Images", short_help="Show what .hri images contain; same as info.")(info.info)


def _show_version(wanted: bool) -> None:
    if wanted:
        from headrace import __version__  # noqa: PLC0415 - few verbs need it

        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with its code."""
    app()
