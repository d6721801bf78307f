# SPDX-License-Identifier: Apache-2.0
"""What is measured: the cases, the loaders that take part, and the environments that they run in."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import ROOT

PROGRAMS = ROOT / "benchmarks" / "peers"

# glibc then keeps freed buffers of this size for the next image instead of returning them to the kernel.
RAISED_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}

ANTIALIASED = "antialiased"
NOT_ANTIALIASED = "not antialiased"
AREA = "area averages"


@dataclass(frozen=True)
class Case:
    """A set of images and how they are loaded."""

    name: str
    title: str
    source: str  # photos, jpegs or small
    crop: str
    size: int
    batch_size: int
    epochs: int
    extra: bool = False  # measured only if named


@dataclass(frozen=True)
class Contender:
    """A loader: `program` is `benchmarks/peers/load_<program>.py`."""

    name: str  # for options and JSON
    label: str  # for tables
    program: str
    store: Mapping[str, str]  # how it stores the images of each source that it can load
    variant: str = ""
    resize: str = ANTIALIASED
    environ: Mapping[str, str] = field(default_factory=dict)
    extra: bool = False  # measured only if named, or with `--peers all`

    @property
    def ours(self) -> bool:
        return self.program == "headrace"


CASES = (
    Case("photos-224", "2048x1024 PNG photographs", "photos", "random-resized", 224, batch_size=32, epochs=2),
    Case("photos-512", "2048x1024 PNG photographs", "photos", "random", 512, batch_size=32, epochs=2, extra=True),
    Case("jpegs-224", "400-pixel JPEGs", "jpegs", "random-resized", 224, batch_size=32, epochs=4),
    Case("small", "64x64 images", "small", "center", 56, batch_size=256, epochs=2),
)

_FILES = {"photos": "png", "jpegs": "jpeg"}
_RAW = {"photos": "beton-raw", "small": "beton-raw"}
_JPG = {"jpegs": "beton-jpg"}
_OURS = {"photos": "hri-fast", "jpegs": "keep", "small": "raw"}

CONTENDERS = (
    Contender("dataloader-pillow", "DataLoader + Pillow", "dataloader", _FILES),
    Contender(
        "dataloader-pillow-tuned", "DataLoader + Pillow, malloc tuned", "dataloader", _FILES, environ=RAISED_THRESHOLDS
    ),
    Contender("dataloader-cv2", "DataLoader + cv2", "dataloader", _FILES, "cv2", NOT_ANTIALIASED, extra=True),
    Contender(
        "dataloader-cv2-tuned",
        "DataLoader + cv2, malloc tuned",
        "dataloader",
        _FILES,
        "cv2",
        NOT_ANTIALIASED,
        RAISED_THRESHOLDS,
        extra=True,
    ),
    Contender("webdataset", "WebDataset + Pillow", "webdataset", {"photos": "tar", "jpegs": "tar"}, extra=True),
    Contender("litdata", "LitData + Pillow", "litdata", {"photos": "litdata", "jpegs": "litdata"}, extra=True),
    Contender("grain", "Grain + Pillow", "grain", _FILES, extra=True),
    Contender("spdl", "SPDL", "spdl", _FILES, extra=True),
    Contender("spdl-cv2", "SPDL + cv2", "spdl", _FILES, "cv2", NOT_ANTIALIASED, extra=True),
    Contender("tfdata", "tf.data", "tfdata", _FILES),
    Contender("tfdata-coarse", "tf.data, no antialias", "tfdata", _FILES, "no-antialias", NOT_ANTIALIASED, extra=True),
    Contender("dali", "DALI, crop in the decoder", "dali", _FILES),
    Contender("dali-plain", "DALI", "dali", _FILES, "plain", extra=True),
    Contender("ffcv-raw", "FFCV, raw", "ffcv", _RAW, resize=AREA),
    Contender("ffcv-raw-channels-last", "FFCV, raw, channels last", "ffcv", _RAW, "channels-last", AREA),
    Contender("ffcv-jpg", "FFCV, jpg", "ffcv", _JPG, resize=AREA),
    Contender("ffcv-jpg-channels-last", "FFCV, jpg, channels last", "ffcv", _JPG, "channels-last", AREA),
    Contender("headrace-fast", "Headrace, hri:fast", "headrace", {"photos": "hri-fast", "small": "hri-fast"}),
    Contender("headrace-dense", "Headrace, hri:dense", "headrace", {"photos": "hri-dense"}),
    Contender("headrace-raw", "Headrace, raw", "headrace", {"photos": "raw", "small": "raw"}),
    Contender("headrace-keep", "Headrace, files as they are", "headrace", {"photos": "keep", "jpegs": "keep"}),
    Contender(
        "headrace-dataloader", "DataLoader over headrace.open", "headrace", _OURS, variant="dataloader", extra=True
    ),
)


def choose_cases(names: str) -> list[Case]:
    """Return the cases with these comma-separated names; the usual ones if there are none."""
    wanted = [name for name in names.split(",") if name]
    known = {case.name: case for case in CASES}
    for name in wanted:
        if name not in known:
            raise ValueError(f"--cases must be from {', '.join(known)}; got {name}")
    return [known[name] for name in wanted] if wanted else [case for case in CASES if not case.extra]


def choose_contenders(names: str) -> list[Contender]:
    """Return the loaders whose names begin with one of these; "" is the usual ones, "all" is all of them."""
    if names in {"", "all"}:
        return [one for one in CONTENDERS if names or not one.extra]
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if not any(contender.name.startswith(name) for contender in CONTENDERS):
            known = ", ".join(contender.name for contender in CONTENDERS)
            raise ValueError(f"--peers must be from {known}; got {name}")
    return [one for one in CONTENDERS if any(one.name.startswith(name) for name in wanted)]


class Environments:
    """The Python environments that `make peers` made; Headrace runs in this one."""

    def __init__(self, folder: Path = ROOT / "build" / "peers") -> None:
        self._folder = folder

    def installed(self, program: str) -> bool:
        return program == "headrace" or (self._folder / program / ".installed").exists()

    def command(self, program: str, arguments: Sequence[str]) -> list[str]:
        """Return the command line that runs a peer's program in its environment."""
        python = sys.executable if program == "headrace" else str(self._folder / program / "bin" / "python")
        return [python, str(PROGRAMS / f"load_{program}.py"), *arguments]
