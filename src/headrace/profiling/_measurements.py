# SPDX-License-Identifier: Apache-2.0
"""What a profile measured, as plain figures; the verdict and the report are made from these and nothing else.

Everything but the machine and the source may be missing: a foreign loader shows less than ours, and a run that was
interrupted has what was measured so far. Rates are images a second, costs are seconds or bytes an image.

A stage works in a place. Stages that share a place take turns, so their times add; places work at once, so the slowest
decides. `headrace.profiling.judging._pipeline` has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.errors import InvalidReport
from headrace.measuring import Rate as Rate  # noqa: PLC0414 - part of the measurements, defined with the stopwatch

StageName = Literal["open", "read", "decode", "transform", "sample", "batch", "transfer"]
"""In the order of the pipeline. `sample` is all that a foreign dataset does to make one: it cannot be taken apart."""

Place = Literal["storage", "cores", "thread", "link", "trainer"]
"""`cores`: the workers on them. `thread`: one thread beside the trainer. `link`: the way to the device. `trainer`: its
own thread or device, in turn with the step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Where it was measured."""

    cores: int
    """That this process may use, or that were emulated."""
    processor: str | None = None
    memory_bytes: int | None = None
    storage: str | None = None
    """What the source lies on, in words."""
    accelerator: str | None = None
    system: str | None = None
    emulated: str | None = None
    """What of this was emulated, as given on the command line: `storage=200MB/s,cores=2`."""

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise InvalidReport(f"measurements.machine.cores is {self.cores}; 1 or more is expected")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What was profiled."""

    kind: Literal["folder", "dataset", "loader"]
    name: str
    """Its path, or what the loader is."""
    path: str | None = None
    """What `headrace build` can read the images from; None if it is not known."""
    build_to: str | None = None
    """A free path, beside the source or in the current folder, where a new dataset can be built."""
    samples: int | None = None
    n_bytes: int | None = None
    """On storage, all samples together."""
    image_bytes: float | None = None
    """Mean size of a stored image."""
    pixel_bytes: float | None = None
    """Mean size of a decoded image, before the transforms."""
    formats: dict[str, float] = field(default_factory=dict)
    """Format and its share of the samples."""
    lossy: bool | None = None
    """Whether any image is stored lossily, so that other lossy files of the same pixels lose nothing more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeSummary:
    """How samples became batches, as far as it decides the speed."""

    batch_size: int | None = None
    workers: int | None = None
    """Threads or processes that make samples; None is one a core."""
    transforms: tuple[str, ...] = ()
    """One line each, as `random_resized_crop 224 x 224`."""
    options: tuple[str, ...] | None = None
    """Command-line options that make the same batches: `--crop`, `224`. None if options cannot express it."""
    batch_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stage alone: fed from memory, its results thrown away."""

    name: StageName
    place: Place = "cores"
    """Where its warm rates are from. Cold rates are always those of the storage."""
    rates: tuple[Rate, ...] = ()
    """With warm input, by ascending number of cores; of a place that no workers share a single point."""
    cold_rates: tuple[Rate, ...] = ()
    """Of `open` and `read`: with nothing in the page cache."""
    cpu_seconds: float | None = None
    """CPU time an image on one core; less than the time itself where the stage waits."""
    n_bytes: float | None = None
    """That an image moves through it."""
    detail: str | None = None
    """What ran, in a few words: `png`, `random_resized_crop 224`, `collate_fn`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differential:
    """Trainer alone, loader alone, both together. Works with any loader."""

    trainer: float | None = None
    """ImageSample a second of the trainer on one batch that never changes: its ceiling."""
    loader: float | None = None
    """ImageSample a second of the loader with nobody using them."""
    together: float | None = None
    stated: bool = False
    """Whether the trainer's time is the user's word (`--step-ms`) and the step a wait."""
    step_seconds: float | None = None
    trainer_cores: float | None = None
    """Cores that the trainer alone keeps busy."""
    loader_cores: float | None = None
    """Cores that the loader alone keeps busy, its processes included."""
    thread_busy: float | None = None
    """Share of the time that the iterating thread was on a core, with the loader alone: near 1, that thread binds."""
    warm_loader: float | None = None
    """Rate of the loader over samples that the page cache holds, where `loader` was measured cold."""
    batches: int | None = None
    trainer_spread: float | None = None
    """How far repeats of `trainer` differ: half their range over the median. None: too few repeats to tell."""
    loader_spread: float | None = None
    together_spread: float | None = None

    @property
    def stall(self) -> float | None:
        """Share of the time that the trainer waits for data, which a perfect loader would save."""
        if not self.trainer or self.together is None:
            return None
        return max(0.0, 1 - self.together / self.trainer)


@dataclass(frozen=True, kw_only=True, slots=True)
class RawAndRecords:
    """The same images as files of their own and as records: open and read, with all workers."""

    images: int
    raw_cold: float | None = None
    raw_warm: float | None = None
    records_cold: float | None = None
    records_warm: float | None = None
    image_bytes: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatCost:
    """What a sample costs in records of a format, under the recipe; from a sample of the user's own images.

    The figures are the planner's, by the same names.
    """

    format: str
    """`png`, `jpeg`, `webp`, `raw`, `hri:fast`, `hri:dense`."""
    place: Literal["cpu", "device"] = "cpu"
    """Where it is decoded."""
    read_bytes: float
    """Read for a sample: of a cropped image perhaps not all."""
    stored_bytes: float
    cpu_seconds: float
    """Of a whole sample, on one core with the others idle."""
    cpu_seconds_crowded: float | None = None
    """The same with all cores busy."""
    link_bytes: float = 0.0
    device_seconds: float = 0.0
    encode_seconds: float = 0.0
    lossless: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """The mix of formats that `headrace plan` would choose. What it gives follows from the costs of its formats."""

    shares: dict[str, float]
    """Share of the samples by format."""
    stored_bytes: float | None = None
    """Of all images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NearProng:
    """A second worker near the storage."""

    rate: float
    """ImageSample a second that it prepares."""
    share: float | None = None
    """Of the batches that came from it, where a run was measured."""
    host_cpu_seconds: float | None = None
    near_cpu_seconds: float | None = None
    host_joules: float | None = None
    near_joules: float | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Of the loader and its processes, without the trainer's where it can be told apart."""

    peak_bytes: int
    batches_bytes: int | None = None
    """Of which batches that are ready or in the making."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Energy:
    """Energy an image."""

    joules: float
    estimated: bool
    """Whether it is CPU time times stated watts, and no counter's reading."""
    meter: str
    """`rapl`, `nvml`, `zeus` or `cpu time`."""
    watts: float | None = None
    """Of one busy core, as stated, where it is an estimate."""
    parts: dict[str, float] = field(default_factory=dict)
    """Joules an image by part: `package`, `dram`, `accelerator`, or by stage where it is an estimate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIfPoint:
    """One configuration, as the planner predicts it from the cost vectors."""

    cores: float
    storage_rate: float
    """Bytes a second."""
    step: float
    """Seconds of a batch."""
    rate: float
    busy: float
    """Share of the time that the accelerator works."""
    shares: dict[str, float] = field(default_factory=dict)
    """Of the mix that is best there."""
    binds: tuple[str, ...] = ()
    dollars_per_hour: float | None = None
    images_per_dollar: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """A grid of configurations; the members are those of the planner's document."""

    points: tuple[WhatIfPoint, ...]
    best: tuple[WhatIfPoint, ...] = ()
    """For each step the cheapest that keeps the accelerator busy, or gives most images for the money."""
    prices: dict[str, float | str] = field(default_factory=dict)
    """`vcpu_hour`, `accelerator_hour`, `gb_month` and their `currency`."""
    batch_size: int | None = None
    images: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurements:
    """All figures of a profile."""

    machine: Machine
    source: Source
    recipe: RecipeSummary = field(default_factory=RecipeSummary)
    stages: tuple[Stage, ...] = ()
    differential: Differential | None = None
    reads_cold: bool | None = None
    """Whether epochs read from storage. None: they do if the source is larger than memory has room for."""
    raw_and_records: RawAndRecords | None = None
    formats: tuple[FormatCost, ...] = ()
    mix: Mix | None = None
    calibration: dict[str, Any] | None = None
    """The planner's calibration as JSON, so that a plan can be made from the report."""
    near: NearProng | None = None
    memory: Memory | None = None
    energy: Energy | None = None
    what_if: WhatIf | None = None
    complete: bool = True
    """False if something could not be measured, or not in time: what is there is sound, more is missing."""
    interrupted: bool = False
    """Whether Ctrl-C ended the profile before its last measurement."""
    missing: tuple[str, ...] = ()
    """Measurements that a verdict needs and that were not made."""
    seconds: float | None = None
    """That the profile took."""
    started: str | None = None
    """ISO 8601, UTC."""
    headrace: str | None = None
    """Version that measured."""
    disturbed: tuple[str, ...] = ()
    """What was measured while other programs kept the machine busy."""
    notes: tuple[str, ...] = ()
    """How it was measured, and what could not be: one sentence each."""
