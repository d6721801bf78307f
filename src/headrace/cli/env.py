# SPDX-License-Identifier: Apache-2.0
"""`headrace env`: versions, extras, cores, SIMD targets and decoders on this machine."""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
from importlib import metadata
from typing import Any

import typer

from headrace.cli.shared.options import Json
from headrace.units import usable_cores

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?[^;]*(?:;.*\bextra == ['\"]([\w-]+)['\"])?")
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
    threads = "free-threaded" if found["free_threaded"] else "with the GIL"
    if found["free_threaded"] and found["gil_enabled"]:
        threads += ", but the GIL is enabled"
    typer.echo(f"headrace  {found['headrace']}")
    typer.echo(f"python    {found['implementation']} {found['python']}, {threads}")
    typer.echo(f"system    {found['system']}, {found['libc'] or 'unknown C library'}")
    typer.echo(f"cores     {found['cores']}")
    typer.echo(f"targets   {', '.join(found['targets'])}; {found['active_target']} is used")
    typer.echo(f"linked    {', '.join(f'{name} {version}' for name, version in found['libraries'].items())}")
    for name, decoder in found["decoders"].items():
        typer.echo(f"decoder   {name}: {decoder}")
    for name, decodes in found["devices"].items():
        typer.echo(f"device    {name}: {decodes}")
    typer.echo(f"storage   read to a GPU: {_DEVICE_READS[found['device_storage']]}")
    for name, version in found["packages"].items():
        typer.echo(f"package   {name} {version or 'is not installed'}")
    for extra, packages in found["extras"].items():
        missing = [name for name, version in packages.items() if version is None]
        there = ", ".join(f"{name} {version}" for name, version in packages.items() if version is not None)
        hint = f"{', '.join(missing)} is missing: pip install 'headrace[{extra}]'"
        typer.echo(f"extra     {extra}: {'; '.join(filter(None, (there, hint if missing else '')))}")


def _find() -> dict[str, Any]:
    from headrace import __version__, codec, loader, storage  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    required, extras = _requirements()
    return {
        "headrace": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil_enabled": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(filter(None, platform.libc_ver())),
        "cores": usable_cores(),
        "targets": list(codec.targets()),
        "active_target": codec.active_target(),
        "libraries": loader.libraries(),
        "decoders": loader.decoders(),
        "devices": loader.devices(),
        "device_storage": storage.transfer_method(),
        "packages": {name: _version(name) for name in required},
        "extras": {extra: {name: _version(name) for name in names} for extra, names in extras.items()},
    }


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Return the packages that headrace needs, and those of each extra, from the metadata of the installation."""
    required: list[str] = []
    extras: dict[str, list[str]] = {}
    included: dict[str, list[str]] = {}
    for requirement in _metadata_lines():
        match = _REQUIREMENT.match(requirement)
        if match is None:
            continue
        name, parts, extra = match.groups()
        if extra is None:
            required.append(name)
        elif name == "headrace":  # headrace[plan,report]
            included.setdefault(extra, []).extend(parts.split(","))
        else:
            extras.setdefault(extra, []).append(name)
    for extra, parts in included.items():
        if extra in extras:  # `all` has no packages of its own
            extras[extra] += [name for part in parts for name in extras.get(part, [])]
    return required, dict(sorted(extras.items()))


def _metadata_lines() -> list[str]:
    try:
        return metadata.requires("headrace") or []
    except metadata.PackageNotFoundError:  # run from a folder that was not installed
        return []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
