# SPDX-License-Identifier: Apache-2.0
"""`headrace env`: versions, cores, SIMD targets and decoders on this machine."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import Any

import typer

from headrace.cli.shared.options import Json
from headrace.units import usable_cores

_PACKAGES = ("numpy", "pyarrow", "pillow", "imagecodecs", "torch", "triton", "jax")

_DEVICE_READS = {
    "kvikio": "directly, with kvikio and GPUDirect Storage",
    "pinned": "through pinned host memory; kvikio or its driver is not available",
    "pageable": "into host memory; there is no GPU",
}


def env(as_json: Json = False) -> None:
    """Show versions, CPU cores, decoders and GPUs; paste it into a bug report.

    \b
    headrace env
    headrace env --json | jq .decoders
    """
    found = _find()
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"headrace  {found['headrace']}, Python {found['python']} on {found['system']}")
    typer.echo(f"cores     {found['cores']}")
    typer.echo(f"targets   {', '.join(found['targets'])}; {found['active_target']} is used")
    for name, decoder in found["decoders"].items():
        typer.echo(f"decoder   {name}: {decoder}")
    for name, decodes in found["devices"].items():
        typer.echo(f"device    {name}: {decodes}")
    typer.echo(f"storage   read to a GPU: {_DEVICE_READS[found['device_storage']]}")
    for name, version in found["packages"].items():
        typer.echo(f"package   {name} {version or 'is not installed'}")


def _find() -> dict[str, Any]:
    from headrace import __version__, codec, loader, storage  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    return {
        "headrace": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": usable_cores(),
        "targets": list(codec.targets()),
        "active_target": codec.active_target(),
        "decoders": loader.decoders(),
        "devices": loader.devices(),
        "device_storage": storage.transfer_method(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
