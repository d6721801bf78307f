# SPDX-License-Identifier: Apache-2.0
"""The command line: `headrace VERB …`, one thin file a verb."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import build, decode, encode, env, extract, info, inspect, offload, plan, profile, size, verify

__all__ = ["app", "main"]

app = typer.Typer(
    name="headrace",
    help="Lossless images that decode as fast as an accelerator can train on them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(encode.encode)
app.command()(decode.decode)
app.command()(inspect.inspect)
app.command()(build.build)
app.command()(info.info)
app.command()(verify.verify)
app.command()(extract.extract)
app.command()(profile.profile)
app.command()(offload.offload)
app.command()(plan.plan)
app.command()(size.size)
app.command()(env.env)


def _show_version(wanted: bool) -> None:
    if wanted:
        from headrace import __version__  # noqa: PLC0415 - not for every verb

        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    app()
