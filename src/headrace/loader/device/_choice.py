# SPDX-License-Identifier: Apache-2.0
"""Where images are decoded: on the CPU, or on the device that the batches go to."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np

from headrace import _core
from headrace.errors import MissingExtra
from headrace.loader._options import Options
from headrace.loader.device._transfer import Transfer
from headrace.records import Dataset
from headrace.records.schema import DTYPE_NAMES, FORMAT_CODES, stored_format
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
# The kernels are compiled for devices of this type (ROCm's have the same name). Elsewhere plain PyTorch would decode,
# which is slower than the CPU's own decoder.
_GPU = "cuda"
# Measured with batches of 32: at 37 KiB decoded of an image the host's part takes longer than decoding, at 64 KiB about
# four fifths of it. Below this, the device would cost the host more than it saves.
_LEAST_BYTES = 64 << 10
_ONE_BYTE = [code for code, name in DTYPE_NAMES.items() if name == "uint8"]
_LOOKED_AT = 256  # samples that stand for all
_ROWS_AT_A_TIME = 1 << 18
_DOABLE = (CenterCrop, HorizontalFlip, Normalize, RandomCrop, RandomResizedCrop, Resize, VerticalFlip)


class DecodeChoice:
    """Where a loader decodes. A GPU is tested when the answer is first needed: making a loader starts nothing."""

    def __init__(self, options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> None:
        """Choose by what is known without the device; see `choose_place`."""
        self._options, self._dataset, self._compiled, self._pixels = options, dataset, compiled, pixels
        self._wanted = choose_place(options, dataset, compiled, pixels)
        self._place: DecodePlace | None = None

    def place(self, transfer: Transfer) -> DecodePlace:
        """The place, after a self-test of the device that batches go to. "auto" falls back to the CPU with a warning.

        First called in the trainer's thread, whose current device "cuda" stands for.

        Raises:
            ValueError: `decode="device"` was asked for and the device decodes wrongly.

        """
        if self._place is None:
            self._place = self._tested(transfer)
        return self._place

    def _tested(self, transfer: Transfer) -> DecodePlace:
        if self._wanted == "cpu" or transfer.device.type == "cpu":
            return self._wanted
        from headrace import kernels  # noqa: PLC0415 - brings PyTorch

        insists = self._options.decode == "device"
        reason = None if insists else kernels.reason_not_compiled_for(transfer.device)
        if reason is None:
            transfer.find_device()
            reason = kernels.reason_against_device(transfer.device, self._use())
        if reason is None:
            return "device"
        if insists:
            raise ValueError(f"decode='device' cannot be done: {reason}; or set decode='auto' or 'cpu'")
        warnings.warn(
            f"images are decoded on the CPU, not on {transfer.device}: {reason}", RuntimeWarning, stacklevel=2
        )
        return "cpu"

    def _use(self) -> Any:
        """What the device would be asked for, by the dtypes of all samples and by the transforms."""
        from headrace.kernels import DeviceUse  # noqa: PLC0415 - brings PyTorch

        compiled, dataset = self._compiled, self._dataset
        inner = _inner(compiled)
        normalised = any(isinstance(each, Normalize) for each in inner)
        made = compiled.dtype or ("float32" if normalised else None)
        resizes = any(isinstance(each, (Resize, RandomResizedCrop)) for each in inner)
        masks = any(dataset.fields[name] == "mask" for name in self._pixels)
        images = any(dataset.fields[name] != "mask" for name in self._pixels)
        decoded = {made} if images else set()
        return DeviceUse(
            stored=_stored_dtypes(self._options, dataset, self._pixels),
            decoded=frozenset(decoded | ({None} if resizes or masks else set())),
            resized=frozenset({made} if resizes and images else set()),
        )


def choose_place(options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> DecodePlace:
    """Do as `decode` says; "auto" is the device if it is an accelerator and nothing speaks against it.

    One thing that does is images so small that the host is done sooner if it decodes them itself.

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
    if kind != _GPU:
        if kind != "cpu":
            _log.info("images are decoded on the CPU: the kernels were never compiled for %r", options.device)
        return "cpu"
    if reason is None:
        reason = _not_worth_it(options, dataset, compiled, pixels)
    if reason is not None:
        _log.info("images are decoded on the CPU, not on %s: %s", options.device, reason)
    return "device" if reason is None else "cpu"


def reason_against(options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> str | None:
    """Say why a device cannot decode for such a loader; None if it can."""
    if options.device is None:
        return "no device is given: set device='cuda'"
    if options.output != "torch":
        return f"what a device decodes is PyTorch's, and output is {options.output!r}"
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


def _stored_dtypes(options: Options, dataset: Dataset, pixels: Sequence[str]) -> frozenset[str]:
    """The dtypes of all images that the device would decode, by the index."""
    formats = device_formats(options, pixels)
    found: set[int] = set()
    for begin in range(0, len(dataset), _ROWS_AT_A_TIME):
        rows = dataset.gather.rows(np.arange(begin, min(begin + _ROWS_AT_A_TIME, len(dataset))))
        for field in dataset.manifest.fields:
            for rendition in range(field.renditions if field.name in pixels else 0):
                columns = dataset.gather.pixel_columns(field.name, rendition, rows)
                ours = np.isin(columns["format"], [FORMAT_CODES[form] for form in formats[field.name]])
                found.update(np.unique(columns["dtype"][ours]).tolist())
    return frozenset(DTYPE_NAMES[code] for code in found if code in DTYPE_NAMES)


def _not_worth_it(options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> str | None:
    """Say why a device that could decode had better not, unless it is insisted on."""
    if find_spec("triton") is None:
        return "Triton is not installed: pip install 'headrace[gpu]'"
    if compiled.per_sample or options.collate_fn is not None:
        return "functions of samples expect them in the host's memory"
    if options.plan is not None:  # who has a plan has measured it
        return None
    mean = _mean_decoded_bytes(options, dataset, compiled, pixels)
    if mean < _LEAST_BYTES:
        return f"it would decode {mean / 1024:.0f} KiB an image, which the host does sooner than it lays them out"
    return None


def _mean_decoded_bytes(options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> float:
    """How many bytes of pixels the device would decode of an image, by a few samples of the first epoch."""
    rows = np.linspace(0, len(dataset) - 1, min(len(dataset), _LOOKED_AT)).astype(np.int64)
    formats = device_formats(options, pixels)
    names = _core.VIEW_ROWS.split()
    decoded = []
    for name in pixels:
        columns = dataset.gather.pixel_columns(name, 0, rows)
        ours = np.isin(columns["format"], [FORMAT_CODES[form] for form in formats[name]])
        sizes = np.stack([columns["height"], columns["width"]], axis=1).astype(np.int64)
        transform = compiled.mask if dataset.fields[name] == "mask" else compiled.image
        table = _core.plan_views(transform, sizes, rows, 1, 0, 0)
        pixel_bytes = columns["channels"] * np.where(np.isin(columns["dtype"], _ONE_BYTE), 1, 2)
        decoded.append((table[names.index("height")] * table[names.index("width")] * pixel_bytes)[ours])
    every = np.concatenate(decoded) if decoded else np.zeros(0)
    return float(every.mean()) if len(every) else 0.0


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
