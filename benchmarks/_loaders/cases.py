# SPDX-License-Identifier: Apache-2.0
"""What is measured: the cases, the ways in which their images are stored, and the loaders that take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# glibc's largest; so that a freed buffer of any image here is kept for the next one.
RAISED_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}

ANTIALIASED = "antialiased"
NOT_ANTIALIASED = "not antialiased"
AREA = "area"


@dataclass(frozen=True)
class Case:
    """A set of images and what becomes of them."""

    name: str
    source: str  # photos, jpegs or small
    crop: str
    size: int
    batch_size: int
    epochs: int

    @property
    def resizes(self) -> bool:
        return self.crop == "random-resized"


@dataclass(frozen=True)
class Contender:
    """A loader, as what it reads and how: `program` is `benchmarks/peers/load_<program>.py`."""

    name: str  # for options and JSON
    label: str  # for tables
    program: str
    store: Mapping[str, str]  # how it has the images of each source that it can load
    variant: str = ""
    resize: str = ANTIALIASED
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        return self.program == "headrace"


CASES = (
    Case("photos-224", "photos", "random-resized", 224, batch_size=32, epochs=2),
    Case("photos-512", "photos", "random", 512, batch_size=32, epochs=2),
    Case("jpegs-224", "jpegs", "random-resized", 224, batch_size=32, epochs=4),
    Case("small", "small", "center", 56, batch_size=256, epochs=2),
)

_FILES = {"photos": "png", "jpegs": "jpeg"}
_RAW = {"photos": "beton-raw", "small": "beton-raw"}
_TUNED = "thresholds raised"

CONTENDERS = (
    Contender("dataloader-pillow", "DataLoader + Pillow", "dataloader", _FILES),
    Contender(
        "dataloader-pillow-tuned",
        f"DataLoader + Pillow, {_TUNED}",
        "dataloader",
        _FILES,
        environ=RAISED_THRESHOLDS,
    ),
    Contender("dataloader-cv2", "DataLoader + cv2", "dataloader", _FILES, "cv2", NOT_ANTIALIASED),
    Contender(
        "dataloader-cv2-tuned",
        f"DataLoader + cv2, {_TUNED}",
        "dataloader",
        _FILES,
        "cv2",
        NOT_ANTIALIASED,
        RAISED_THRESHOLDS,
    ),
    Contender("webdataset", "WebDataset + Pillow", "webdataset", {"photos": "tar", "jpegs": "tar"}),
    Contender("litdata", "LitData + Pillow", "litdata", {"photos": "litdata", "jpegs": "litdata"}),
    Contender("grain", "Grain + Pillow", "grain", _FILES),
    Contender("spdl", "SPDL", "spdl", _FILES),
    Contender("spdl-cv2", "SPDL + cv2", "spdl", _FILES, "cv2", NOT_ANTIALIASED),
    Contender("tfdata", "tf.data", "tfdata", _FILES),
    Contender("tfdata-coarse", "tf.data, no antialias", "tfdata", _FILES, "no-antialias", NOT_ANTIALIASED),
    Contender("dali", "DALI, crop in the decoder", "dali", _FILES),
    Contender("dali-plain", "DALI", "dali", _FILES, "plain"),
    Contender("ffcv-raw", "FFCV, raw", "ffcv", _RAW, resize=AREA),
    Contender("ffcv-raw-channels-last", "FFCV, raw, channels last", "ffcv", _RAW, "channels-last", AREA),
    Contender("ffcv-jpg", "FFCV, jpg", "ffcv", {"jpegs": "beton-jpg"}, resize=AREA),
    Contender("headrace-fast", "Headrace, hri:fast", "headrace", {"photos": "hri-fast", "small": "hri-fast"}),
    Contender("headrace-dense", "Headrace, hri:dense", "headrace", {"photos": "hri-dense"}),
    Contender("headrace-raw", "Headrace, raw", "headrace", {"photos": "raw", "small": "raw"}),
    Contender("headrace-keep", "Headrace, files as they are", "headrace", {"photos": "keep", "jpegs": "keep"}),
    Contender(
        "headrace-dataloader",
        "DataLoader over headrace.open",
        "headrace",
        {"photos": "hri-fast", "jpegs": "keep", "small": "raw"},
        "dataloader",
    ),
)


def choose_cases(names: str) -> list[Case]:
    """The cases of these comma-separated names; all if there are none."""
    wanted = [name for name in names.split(",") if name]
    known = {case.name: case for case in CASES}
    for name in wanted:
        if name not in known:
            raise ValueError(f"there is no case {name}: choose from {', '.join(known)}")
    return [known[name] for name in wanted] if wanted else list(CASES)


def choose_contenders(names: str) -> list[Contender]:
    """The contenders that are one of these comma-separated names or begin with one; all if there are none."""
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if not any(contender.name.startswith(name) for contender in CONTENDERS):
            known = ", ".join(contender.name for contender in CONTENDERS)
            raise ValueError(f"there is no peer {name}: choose from {known}")
    return [one for one in CONTENDERS if not wanted or any(one.name.startswith(name) for name in wanted)]
