# SPDX-License-Identifier: Apache-2.0
"""The options of a build, checked before any file is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal

from headrace import formats
from headrace.errors import UnsupportedImage
from headrace.records.manifest import Manifest
from headrace.records.plan import Mix, load_plan, parse_mixes, single
from headrace.records.schema import ALIGNMENTS, DEFAULT_HRI, PIXEL_TYPES, Field, make_fields, stored_format

KEEP = "keep"
SHARD_BYTES = 256 << 20
SHARD_SAMPLES = 1024
MAX_SHARD_SAMPLES = 65536

OnError = Literal["raise", "skip"]
Pages = Literal["one", "first"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How samples become renditions and rows: everything that a worker needs."""

    fields: tuple[Field, ...]
    mixes: Mapping[str, Mix]
    align: int = 64
    verify: bool = True
    skip_bad: bool = False
    apply_orientation: bool = False
    first_page: bool = False


def make_conversion(
    types: Mapping[str, str],
    *,
    format: str,  # noqa: A002
    mask_format: str | None,
    plan: Mapping[str, Any] | str | PathLike[str] | None,
    renditions: int | None,
    align: int,
    verify: bool,
    on_error: OnError,
    apply_orientation: bool = False,
    pages: Pages = "one",
) -> Conversion:
    """Check the options against the fields; raise ValueError for the first that is wrong."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip'; got {on_error!r}")
    if pages not in ("one", "first"):
        raise ValueError(f"pages must be 'one' or 'first'; got {pages!r}")
    if align not in ALIGNMENTS:
        raise ValueError(f"align must be a power of two from {ALIGNMENTS[0]} to {ALIGNMENTS[-1]}; got {align}")
    _check_format(format, "format")
    if mask_format is None:
        mask_format = format if _keeps_pixels(format) else DEFAULT_HRI
    _check_format(mask_format, "mask_format")
    mixes = {
        name: single(format if kind == "image" else mask_format) for name, kind in types.items() if kind in PIXEL_TYPES
    }
    mixes |= _planned(plan, renditions, mixes)
    for name, mix in mixes.items():
        for chosen in mix.formats:
            _check_format(chosen, f"the format of {name!r}")
            if types[name] == "mask" and not _keeps_pixels(chosen):
                raise ValueError(f"{chosen} would change the values of mask {name!r}; choose a lossless format")
    fields = make_fields(types, {name: mix.renditions for name, mix in mixes.items()})
    if apply_orientation and any(KEEP in mix.formats for mix in mixes.values()):
        raise ValueError(
            f"apply_orientation changes the pixels, but format 'keep' does not; choose a format such as {DEFAULT_HRI}"
        )
    return Conversion(fields, mixes, align, verify, on_error == "skip", apply_orientation, pages == "first")


def conversion_like(
    manifest: Manifest,
    *,
    format: str | None,  # noqa: A002
    verify: bool,
    on_error: OnError,
    pages: Pages,
) -> Conversion:
    """Return how samples are stored as those of a dataset are; `format` is another one for its images.

    Of a dataset whose options do not say it, each field is stored in the format that most of its images have.
    """
    types = {field.name: field.declared for field in manifest.fields}
    plain = make_conversion(
        types,
        format=format or DEFAULT_HRI,
        mask_format=None,
        plan=None,
        renditions=None,
        align=manifest.align,
        verify=verify,
        on_error=on_error,
        apply_orientation=manifest.options.get("apply_orientation") is True,
        pages=pages,
    )
    mixes = dict(plain.mixes)
    for field in manifest.fields:
        if field.is_pixels and (format is None or field.type == "mask"):
            mixes[field.name] = _stored_mix(manifest, field)
        elif field.is_pixels and field.renditions != 1:
            raise ValueError(
                f"{field.name!r} is stored in {field.renditions} formats, as its plan says; format must not be given"
            )
    return replace(plain, fields=manifest.fields, mixes=mixes)


def _stored_mix(manifest: Manifest, field: Field) -> Mix:
    counts = manifest.formats.get(field.name, {})
    usual = sorted(counts, key=lambda name: -counts[name])[: field.renditions]
    try:
        stored = manifest.options["formats"][field.name]
        mix = Mix(tuple(stored["formats"]), tuple(map(float, stored["ends"])), int(stored["renditions"]))
        fits = mix.renditions == field.renditions <= len(mix.formats) == len(mix.ends) and mix.ends[-1] == 1
    except (KeyError, TypeError, ValueError, IndexError):
        fits = False
    if not fits:
        names = tuple(usual) or (DEFAULT_HRI,)
        mix = Mix(names, tuple((k + 1) / len(names) for k in range(len(names))), field.renditions)
        if len(names) < field.renditions:
            raise ValueError(f"it is unknown in which formats {field.name!r} of the dataset is stored; build it again")
    for name in mix.formats:
        _check_format(name, f"the format of {field.name!r} in the dataset")
        if field.type == "mask" and not _keeps_pixels(name):
            raise ValueError(f"{name} would change the values of mask {field.name!r}; build the dataset again")
    return mix


def _planned(
    plan: Mapping[str, Any] | str | PathLike[str] | None, renditions: int | None, fields: Collection[str]
) -> dict[str, Mix]:
    """Return the mixes of the fields in the plan."""
    if plan is None:
        if renditions is not None:
            raise ValueError("renditions counts the formats of a plan, and there is none: give a plan too")
        return {}
    mixes = parse_mixes(load_plan(plan), renditions)
    for name in mixes:
        if name not in fields:
            raise ValueError(
                f"the plan has a field {name!r}; the source's images and masks are {', '.join(fields) or 'none'}"
            )
    return mixes


def describe(conversion: Conversion) -> dict[str, Any]:
    """Return, as JSON values, the options that determine the bytes of the dataset."""
    options: dict[str, Any] = {
        "formats": {
            name: {"renditions": mix.renditions, "formats": list(mix.formats), "ends": list(mix.ends)}
            for name, mix in conversion.mixes.items()
        },
        "align": conversion.align,
        "on_error": "skip" if conversion.skip_bad else "raise",
    }
    # Written only if not the default, so that datasets keep the bytes they had before these options existed.
    if conversion.apply_orientation:
        options["apply_orientation"] = True
    if conversion.first_page:
        options["pages"] = "first"
    return options


def _check_format(text: str, what: str) -> None:
    if text == KEEP:
        return
    try:
        formats.parse(text)
        stored_format(text)
    except (UnsupportedImage, ValueError) as error:
        raise ValueError(f"{what}: {error}; or use 'keep' to store the files as they are") from None


def _keeps_pixels(text: str) -> bool:
    return text == KEEP or formats.parse(text)[0].lossless
