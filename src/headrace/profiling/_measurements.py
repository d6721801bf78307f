# SPDX-License-Identifier: Apache-2.0
"""What a profile measured, as plain numbers; the verdict and the report are computed from these alone.

All but the machine and the source may be missing: a loader that is not Headrace's shows less, and an interrupted
profile has only what it measured so far. Rates are images per second; costs are seconds or bytes per image.

Each stage works in a place. Stages in one place take turns, so their times add up. Places work at the same time, so
the slowest one sets the rate. `headrace.profiling.judging._model` has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.errors import InvalidReport
from headrace.measuring import Rate as Rate  # noqa: PLC0414 - part of the measurements, defined with the stopwatch
from headrace.planning import Cost

StageName = Literal["open", "read", "decode", "transform", "sample", "batch", "transfer"]
"""In the order of the pipeline. `sample` is all that `dataset[i]` does in a loader that is not Headrace's."""

StagePlace = Literal["storage", "cores", "thread", "link", "trainer"]
"""`cores`: the workers. `thread`: one thread besides the trainer. `link`: the copy to the device. `trainer`: the thread
or device of the trainer, which takes turns with the training step."""

CACHED_SHARE = 0.8
"""Share of the free memory that the page cache can use: a larger source is read from storage in every epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """The machine on which the profile ran."""

    cores: int
    """Cores that this process may use, or that were emulated."""
    processor: str | None = None
    memory_bytes: int | None = None
    storage: str | None = None
    """File system and device of the source."""
    accelerator: str | None = None
    system: str | None = None
    emulated: str | None = None
    """What was emulated, as on the command line: `storage=200MB/s,cores=2`."""

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise InvalidReport(f"measurements.machine.cores must be at least 1; got {self.cores}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledSource:
    """What was profiled."""

    kind: Literal["folder", "dataset", "loader"]
    name: str
    """A path, or the class of the loader."""
    path: str | None = None
    """Path from which `headrace build` can read the images; None if unknown."""
    build_to: str | None = None
    """Path for a new dataset at which nothing exists yet."""
    samples: int | None = None
    n_bytes: int | None = None
    """Size of all samples on storage."""
    image_bytes: float | None = None
    """Mean size of a stored image."""
    pixel_bytes: float | None = None
    """Mean size of a decoded image, before the transforms."""
    formats: dict[str, float] = field(default_factory=dict)
    """Share of the samples by format; empty for a loader that is not Headrace's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeSummary:
    """How samples become batches, as far as it matters for speed."""

    batch_size: int | None = None
    workers: int | None = None
    """Threads or processes that make samples; 0: the trainer's own thread; None: one per core."""
    transforms: tuple[str, ...] = ()
    """One line each, such as `random_resized_crop 224 x 224`."""
    options: tuple[str, ...] | None = None
    """Command-line options that make the same batches, such as `--crop 224`; None if no options can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage, measured with its input in memory."""

    name: StageName
    place: StagePlace = "cores"
    """Where the warm rates were measured. Cold rates always belong to the storage."""
    rates: tuple[Rate, ...] = ()
    """Input in memory, by ascending number of cores; a single point if the workers do not share the place."""
    cold_rates: tuple[Rate, ...] = ()
    """For `open` and `read`: nothing in the page cache."""
    cpu_seconds: float | None = None
    """CPU time per image on one core; less than the elapsed time if the stage waits."""
    n_bytes: float | None = None
    """Bytes per image that pass through the stage."""
    detail: str | None = None
    """What ran: `png`, `random_resized_crop 224`, the name of a `collate_fn`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Differential:
    """The trainer alone, the loader alone, both together. Can be measured for any loader."""

    trainer: float | None = None
    """Rate of the trainer on one batch again and again: its ceiling."""
    loader: float | None = None
    """Rate of the loader when nothing uses its batches."""
    together: float | None = None
    stated: bool = False
    """True if the user gave the step time (`--step-ms`) and the step only sleeps."""
    step_seconds: float | None = None
    trainer_cores: float | None = None
    """Mean number of busy cores while the trainer runs alone."""
    loader_cores: float | None = None
    """Mean number of busy cores while the loader runs alone, its processes included."""
    thread_busy: float | None = None
    """Share of the time that the iterating thread uses a core, loader alone. Near 1, this thread is the bottleneck."""
    warm_loader: float | None = None
    """Rate of the loader from memory, where `loader` was measured cold."""
    batches: int | None = None
    trainer_spread: float | None = None
    """Half the range of the repeats over their median; None if there were too few repeats."""
    loader_spread: float | None = None
    together_spread: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RawAndRecords:
    """Open and read of the same images, as single files and as records, with all workers."""

    images: int
    raw_cold: float | None = None
    raw_warm: float | None = None
    records_cold: float | None = None
    records_warm: float | None = None

    @property
    def pairs(self) -> tuple[tuple[str, float | None, float | None], ...]:
        """The rates of files and records, cold and warm."""
        return ("cold", self.raw_cold, self.records_cold), ("warm", self.raw_warm, self.records_warm)


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatCost(Cost):
    """What a sample costs in one format under the recipe, calibrated on some of the user's images."""

    place: Literal["cpu", "device"] = "cpu"
    """Where it is decoded."""
    device_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatMix:
    """The mix of formats that `headrace plan` would choose."""

    shares: dict[str, float]
    """Share of the samples by format."""
    stored_bytes: float | None = None
    """Size of all images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Memory of the loader and its processes."""

    peak_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Energy:
    """Energy per image."""

    joules: float
    estimated: bool
    """True if it is CPU time times stated watts, False if it was read from a counter."""
    meter: str
    """`rapl`, `nvml`, `zeus` or `cpu time`."""
    watts: float | None = None
    """Stated power of one busy core, if estimated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurements:
    """All measurements of a profile."""

    machine: MachineFacts
    source: ProfiledSource
    recipe: RecipeSummary = field(default_factory=RecipeSummary)
    stages: tuple[Stage, ...] = ()
    differential: Differential | None = None
    reads_cold: bool | None = None
    """Whether epochs read from storage. None: only if the source is too large for the page cache."""
    raw_and_records: RawAndRecords | None = None
    formats: tuple[FormatCost, ...] = ()
    mix: FormatMix | None = None
    calibration: dict[str, Any] | None = None
    """The planner's calibration as JSON, so that `headrace plan --report` measures nothing again."""
    memory: Memory | None = None
    energy: Energy | None = None
    complete: bool = True
    """False if a measurement failed or there was no time for it."""
    interrupted: bool = False
    """True if Ctrl-C ended the profile early."""
    missing: tuple[str, ...] = ()
    """Measurements that a verdict needs and that were not made."""
    seconds: float | None = None
    """Duration of the profile."""
    started: str | None = None
    """ISO 8601, UTC."""
    headrace: str | None = None
    """Version that measured."""
    other_load: tuple[str, ...] = ()
    """What was measured while other programs kept the machine busy."""
    notes: tuple[str, ...] = ()
    """How it was measured and what failed, one sentence each."""

    @property
    def workers(self) -> int:
        """Workers of the run; 0 if the trainer's own thread makes the samples."""
        return self.machine.cores if self.recipe.workers is None else self.recipe.workers

    @property
    def used_cores(self) -> int:
        """Cores that the workers can keep busy; at least 1."""
        return max(min(self.workers, self.machine.cores), 1)

    @property
    def reads_from_storage(self) -> bool:
        """Whether epochs read from storage instead of the page cache."""
        return not self.fits_in_memory if self.reads_cold is None else self.reads_cold

    @property
    def fits_in_memory(self) -> bool:
        """Whether the page cache can hold the source; true if a size is unknown."""
        n_bytes, memory = self.source.n_bytes, self.machine.memory_bytes
        return n_bytes is None or memory is None or n_bytes <= CACHED_SHARE * memory
