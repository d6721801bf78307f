# SPDX-License-Identifier: Apache-2.0
"""Choose where images are decoded: on the CPU, or on the device that the batches go to."""

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
from headrace.loader.device._plan import view_transforms
from headrace.loader.device._transfer import Transfer
from headrace.records import Dataset
from headrace.records.schema import DTYPE_NAMES, FORMAT_CODES, stored_format
from headrace.tensors import is_tensor
from headrace.transforms import (
    CenterCrop,
    Compiled,
    HorizontalFlip,
    Normalize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)

DEVICE_FORMATS = frozenset(name for name in FORMAT_CODES if name.startswith("hri:"))
"""The formats that a device can decode."""

DecodePlace: TypeAlias = Literal["cpu", "device"]

_log = logging.getLogger("headrace.loader")
# The kernels are compiled for this type of device (also the name of ROCm's). Elsewhere plain PyTorch would decode,
# which is slower than the CPU's own decoder.
_GPU = "cuda"
# Measured with batches of 32: at 37 KiB of decoded pixels per image the host's part takes longer than decoding, at
# 64 KiB about 80 % of it. Below this, the device would cost the host more than it saves.
_MIN_BYTES = 64 << 10
_ONE_BYTE = [code for code, name in DTYPE_NAMES.items() if name == "uint8"]
_MAX_SAMPLES = 256  # to estimate the mean size
_SUPPORTED = (CenterCrop, HorizontalFlip, Normalize, RandomCrop, RandomResizedCrop, Resize, VerticalFlip)


class DecodeChoice:
    """Where a loader decodes. The device is tested when the answer is first needed, not when a loader is created."""

    def __init__(self, options: Options, dataset: Dataset, compiled: Compiled, pixels: tuple[str, ...]) -> None:
        """Choose by what is known without the device. Raises ValueError if `decode="device"` cannot be done."""
        self._options, self._dataset, self._compiled, self._pixels = options, dataset, compiled, pixels
        self._formats = device_formats(options, pixels)
        self._preferred = self._choose()
        self._place: DecodePlace | None = None

    def place(self, transfer: Transfer) -> DecodePlace:
        """Return the place, after a self-test of the device, and raise ValueError if `decode="device"` fails it.

        "auto" falls back to the CPU with a warning. The first call must be in the training loop's thread: "cuda" means
        its current device.
        """
        if self._place is None:
            self._place = self._tested(transfer)
        return self._place

    def _tested(self, transfer: Transfer) -> DecodePlace:
        if self._preferred == "cpu" or transfer.device.type == "cpu":
            return self._preferred
        from headrace import kernels  # noqa: PLC0415 - imports PyTorch

        required = self._options.decode == "device"
        reason = None if required else kernels.reason_not_compiled_for(transfer.device)
        if reason is None:
            transfer.find_device()
            reason = kernels.reason_against_device(transfer.device, self._device_use())
        if reason is None:
            return "device"
        if required:
            raise _refusal(reason)
        warnings.warn(
            f"images are decoded on the CPU, not on {transfer.device}: {reason}", RuntimeWarning, stacklevel=2
        )
        return "cpu"

    def _device_use(self) -> Any:
        """Return what the device would have to do, by the dtypes of all samples and the transforms."""
        from headrace.kernels import DeviceUse  # noqa: PLC0415 - imports PyTorch

        inner = view_transforms(self._compiled)
        normalized = any(isinstance(each, Normalize) for each in inner)
        made = self._compiled.dtype or ("float32" if normalized else None)
        resizes = any(isinstance(each, (Resize, RandomResizedCrop)) for each in inner)
        types = [self._dataset.fields[name] for name in self._pixels]
        images = any(kind != "mask" for kind in types)
        decoded = {made} if images else set()
        return DeviceUse(
            stored=self._stored_dtypes(),
            decoded=frozenset(decoded | ({None} if resizes or "mask" in types else set())),
            resized=frozenset({made} if resizes and images else set()),
        )

    def _choose(self) -> DecodePlace:
        options = self._options
        if options.decode == "cpu":
            return "cpu"
        reason = self._reason_against_device()
        if options.decode == "device":
            if reason is not None:
                raise _refusal(reason)
            if find_spec("torch") is None:
                raise MissingExtra("decode='device' needs PyTorch: pip install 'headrace[gpu]'")
            return "device"
        kind = (options.device or "cpu").partition(":")[0]
        if kind != _GPU:
            if kind != "cpu":
                _log.info("images are decoded on the CPU: the kernels are not compiled for %r", options.device)
            return "cpu"
        if reason is None:
            reason = self._reason_for_cpu()
        if reason is not None:
            _log.info("images are decoded on the CPU, not on %s: %s", options.device, reason)
        return "device" if reason is None else "cpu"

    def _reason_against_device(self) -> str | None:
        """Return why a device cannot decode for this loader; None if it can."""
        options = self._options
        if options.device is None:
            return "no device is given: set device='cuda'"
        if options.output != "torch":
            return f"a device decodes to PyTorch tensors, and output is {options.output!r}"
        if any(is_tensor(self._dataset.fields[name]) for name in options.fields):
            return (
                "the loader also loads tensors, which are read on the CPU: load them with another loader, by `fields`"
            )
        stored = [(name, form) for name in self._pixels for form in self._dataset.formats.get(name, {})]
        if not any(form in DEVICE_FORMATS for _, form in stored):
            return "the dataset has no image or mask in the format hri, the only one that a device decodes"
        if not any(form in self._formats[name] for name, form in stored):
            return "the plan decodes everything on the CPU"
        return self._unsupported_transform()

    def _unsupported_transform(self) -> str | None:
        resizes = 0
        for transform in view_transforms(self._compiled):
            name = type(transform).__name__
            if not isinstance(transform, _SUPPORTED):
                return f"a device does not support {name}: remove it, or use a PerBatch function"
            if isinstance(transform, RandomCrop) and transform.padding is not None:
                return "a device does not support the padding of RandomCrop: remove it"
            if isinstance(transform, (Resize, RandomResizedCrop)):
                resizes += 1
                if transform.interpolation != "bilinear" or not transform.antialias:
                    return f"a device resizes only with interpolation='bilinear' and antialias, which {name} does not"
        return f"a device can resize an image once, and the transforms do it {resizes} times" if resizes > 1 else None

    def _reason_for_cpu(self) -> str | None:
        """Return why "auto" prefers the CPU, although the device can decode; None if it does not."""
        if find_spec("triton") is None:
            return "Triton is not installed: pip install 'headrace[gpu]'"
        if self._compiled.per_sample or self._options.collate_fn is not None:
            return "functions of samples need them in host memory"
        if self._options.plan is not None:  # the plan was made from measurements
            return None
        mean = self._mean_decoded_bytes()
        if mean < _MIN_BYTES:
            return f"it would decode {mean / 1024:.0f} KiB per image, and the host decodes so little faster itself"
        return None

    def _stored_dtypes(self) -> frozenset[str]:
        """Return the dtypes of all images that the device would decode, from the index."""
        dataset, found = self._dataset, set[int]()
        for field in dataset.manifest.fields:
            for rendition in range(field.renditions if field.name in self._pixels else 0):
                names = {part: field.rendition_column(rendition, part) for part in ("format", "dtype")}
                columns = {part: dataset.column(name) for part, name in names.items()}
                found.update(np.unique(columns["dtype"][self._on_device(field.name, columns)]).tolist())
        return frozenset(DTYPE_NAMES[code] for code in found if code in DTYPE_NAMES)

    def _mean_decoded_bytes(self) -> float:
        """Estimate the mean bytes of pixels that the device would decode per image, from a few samples of epoch 0."""
        dataset, gather = self._dataset, self._dataset.gather
        rows = gather.rows(np.linspace(0, len(dataset) - 1, min(len(dataset), _MAX_SAMPLES)).astype(np.int64))
        names = _core.VIEW_ROWS.split()
        decoded = [np.zeros(0)]
        for name in self._pixels:
            columns = gather.pixel_columns(name, 0, rows)
            sizes = np.stack([columns["height"], columns["width"]], axis=1).astype(np.int64)
            transform = self._compiled.mask if dataset.fields[name] == "mask" else self._compiled.image
            table = _core.plan_views(transform, sizes, rows, 1, 0, 0)
            pixel_bytes = columns["channels"] * np.where(np.isin(columns["dtype"], _ONE_BYTE), 1, 2)
            n_bytes = table[names.index("height")] * table[names.index("width")] * pixel_bytes
            decoded.append(n_bytes[self._on_device(name, columns)])
        every = np.concatenate(decoded)
        return float(every.mean()) if len(every) else 0.0

    def _on_device(self, name: str, columns: dict[str, Any]) -> Any:
        """Return which rows have a format that the device decodes."""
        return np.isin(columns["format"], [FORMAT_CODES[form] for form in self._formats[name]])


def device_formats(options: Options, pixels: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the formats of each field that a device decodes: all of `hri`, or with "auto" those of the plan."""
    fields = options.plan["fields"] if options.plan is not None and options.decode == "auto" else {}
    found = dict.fromkeys(pixels, DEVICE_FORMATS)
    for name in fields.keys() & found.keys():
        shares = fields[name]["shares"]
        planned = {stored_format(share["format"]) for share in shares if share.get("decode", "cpu") == "device"}
        found[name] = DEVICE_FORMATS & planned
    return found


def _refusal(reason: str) -> ValueError:
    return ValueError(f"decode='device' cannot be done: {reason}; or set decode='auto' or 'cpu'")
