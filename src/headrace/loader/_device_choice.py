# SPDX-License-Identifier: Apache-2.0
"""Where images are decoded: on the CPU, or on the device that the batches go to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, TypeAlias

from headrace.errors import MissingExtra
from headrace.loader._options import Options
from headrace.records import Dataset
from headrace.records._schema import FORMAT_CODES, stored_format
from headrace.transforms import (
    CenterCrop,
    Compiled,
    HorizontalFlip,
    Normalize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Transform,
    VerticalFlip,
    Views,
)

OURS = frozenset(name for name in FORMAT_CODES if name.startswith("hri:"))
"""The formats that a device decodes."""

DecodePlace: TypeAlias = Literal["cpu", "device"]

_log = logging.getLogger("headrace.loader")
# Triton has kernels for these; elsewhere plain PyTorch would decode, which is slower than the CPU's own decoder.
_ACCELERATORS = ("cuda", "xpu")
_DOABLE = (CenterCrop, HorizontalFlip, Normalize, RandomCrop, RandomResizedCrop, Resize, VerticalFlip)


def choose_place(options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> DecodePlace:
    """Do as `decode` says; "auto" is the device if it is an accelerator and nothing speaks against it.

    Raises:
        ValueError: The device is asked for and cannot do what the loader is to do; the message says why.

    """
    if options.decode == "cpu":
        return "cpu"
    reason = reason_against(options, dataset, compiled, pixels)
    if options.decode == "device":
        if reason is not None:
            raise ValueError(f"decode='device' cannot be done: {reason}; or set decode='auto' or 'cpu'")
        if find_spec("torch") is None:
            raise MissingExtra("decode='device' needs PyTorch: pip install 'headrace[gpu]'")
        return "device"
    kind = (options.device or "cpu").partition(":")[0]
    if kind not in _ACCELERATORS:
        return "cpu"
    if reason is None and find_spec("triton") is None:
        reason = "Triton is not installed: pip install 'headrace[gpu]'"
    if reason is None and (compiled.per_sample or options.collate_fn is not None):
        reason = "functions of samples expect them in the host's memory"
    if reason is not None:
        _log.info("images are decoded on the CPU, not on %s: %s", options.device, reason)
    return "device" if reason is None else "cpu"


def reason_against(options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> str | None:
    """Say why a device cannot decode for such a loader; None if it can."""
    if options.device is None:
        return "no device is given: set device='cuda'"
    if options.output != "torch":
        return f"what a device decodes is PyTorch's, and output is {options.output!r}"
    if options.isolate:
        return "another process cannot hand a device's memory over: leave isolate out"
    if not any(form in OURS for name in pixels for form in dataset.formats.get(name, {})):
        return "the dataset has no image or mask in the format hri, which is all that a device decodes"
    formats = device_formats(options, pixels)
    if not any(form in formats[name] for name in pixels for form in dataset.formats.get(name, {})):
        return "the plan has everything decoded by the CPU"
    return _transform_against(compiled)


def device_formats(options: Options, pixels: Sequence[str]) -> dict[str, frozenset[str]]:
    """The formats of each field that a device decodes: all of ours, or with "auto" those that a plan says so of."""
    fields = options.plan["fields"] if options.plan is not None and options.decode == "auto" else {}
    found = dict.fromkeys(pixels, OURS)
    for name in fields.keys() & found.keys():
        shares = fields[name]["shares"]
        planned = {stored_format(share["format"]) for share in shares if share.get("decode", "cpu") == "device"}
        found[name] = OURS & planned
    return found


def _transform_against(compiled: Compiled) -> str | None:
    resizes = 0
    for transform in _inner(compiled):
        name = type(transform).__name__
        if not isinstance(transform, _DOABLE):
            return f"a device does no {name}: leave it out, or let a PerBatch function do it there"
        if isinstance(transform, RandomCrop) and transform.padding is not None:
            return "a device pads no images: leave the padding of RandomCrop out"
        if isinstance(transform, (Resize, RandomResizedCrop)):
            resizes += 1
            if transform.interpolation != "bilinear" or not transform.antialias:
                return f"a device resizes by interpolation='bilinear' with antialias alone: {name} asks for another"
    return "a device resizes an image once, and the transforms do so more often" if resizes > 1 else None


def _inner(compiled: Compiled) -> tuple[Transform, ...]:
    """The transforms of a view."""
    first = compiled.transforms[0] if compiled.transforms else None
    return tuple(first.transforms) if isinstance(first, Views) else compiled.transforms
