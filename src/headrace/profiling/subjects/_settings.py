# SPDX-License-Identifier: Apache-2.0
"""The checked arguments of a profile, and the machine that it runs on or emulates."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from headrace import transforms
from headrace.errors import ProfileError
from headrace.measuring import WATTS_PER_CORE, available_memory, cpu_name, held_to
from headrace.planning import USUAL_CROP, RecipeSource, batch_options
from headrace.profiling._measurements import MachineFacts
from headrace.profiling.stages._runs import Step, sleeping_step
from headrace.transforms import Compiled
from headrace.units import usable_cores

FULL_SECONDS = 150.0
# --quick must end within 60 s. Measurements take longer than planned; after 50 s, long phases end.
QUICK_SECONDS, QUICK_LATEST = 32.0, 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of a profile, except its subject."""

    step: Step | None
    stated_step: float | None
    """Seconds, if the user gave a time and the step only sleeps."""
    cold: bool
    cores: int
    """Cores that this process has or emulates."""
    core_counts: tuple[int, ...]
    storage_rate: float | None
    """Bytes per second, if a slower storage is emulated."""
    emulated: str | None
    """What is emulated, as the user wrote it."""
    quick: bool
    output: Literal["torch", "numpy"] = "numpy"
    """What batches are made of, if the profile makes the loader."""
    watts: float = WATTS_PER_CORE
    workdir: str | None = None


def read_step(step: Callable[[Any], Any] | float | None) -> tuple[Step | None, float | None]:
    """Return the step as a function, and its seconds if it was given as a time."""
    if step is None or callable(step):
        return step, None
    seconds = float(step)
    if not 0 < seconds < 3600:
        raise ProfileError(
            f"step must be a function or a time between 0 and 3600 seconds, such as 0.035; got {seconds}"
        )
    return sleeping_step(seconds), seconds


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How samples become batches, if the profile makes the loader."""

    loader: dict[str, Any]
    """Arguments of `Loader`."""
    cli_options: tuple[str, ...] | None
    """The same as command-line options; None if no options can."""

    @property
    def batch_size(self) -> int:
        return int(self.loader["batch_size"])

    def compile(self) -> Compiled:
        """Compile the transforms, for a loader that is not Headrace's."""
        names = ("dtype", "layout", "color", "approximate_jpeg")
        options = {name: self.loader[name] for name in names if name in self.loader}
        return transforms.compile(self.loader["transform"], **options)


def read_batches(
    recipe: RecipeSource | None, *, transform: Any, crop: int | None, batch_size: int | None
) -> BatchOptions:
    """Read a recipe that a loader wrote, or take a transform, or the usual transforms for photos."""
    try:
        loader = batch_options(recipe, transform, crop, batch_size)
    except ValueError as error:
        raise ProfileError(str(error)) from None
    words = ("--batch-size", str(loader["batch_size"]))
    if recipe is None and transform is None:
        return BatchOptions(loader, ("--crop", str(crop or USUAL_CROP), *words))
    return BatchOptions(loader, ("--recipe", str(recipe), *words) if isinstance(recipe, str | PathLike) else None)


def refuse(given: Mapping[str, Any], kind: str, instead: str) -> None:
    """Refuse arguments that have no meaning for a subject instead of ignoring them."""
    for name, value in given.items():
        if value not in (None, False):
            raise ProfileError(f"{name} has no meaning for {kind}: {instead}")


@contextmanager
def limited_cores(wanted: float | None) -> Iterator[int]:
    """Restrict this thread, and what it starts, to some of its cores; yields how many it has then."""
    available = usable_cores()
    if wanted is None:
        yield available
        return
    count = int(wanted)
    if count != wanted or not 1 <= count <= available:
        raise ProfileError(
            f"emulated cores must be an integer from 1 to {available}, which this process may use; got {wanted:g}; "
            f"`headrace size` predicts larger machines"
        )
    with held_to(count):
        yield count


def core_counts(cores: int, requested: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to all cores, or the requested numbers that are available."""
    if requested:
        chosen = sorted({n for n in requested if n <= cores})
        if not chosen or min(requested) < 1:
            raise ProfileError(
                f"cores must contain a number from 1 to {cores}, which this process may use; "
                f"got {', '.join(map(str, requested))}"
            )
        return tuple(chosen)
    return (*(2**n for n in range((cores - 1).bit_length())), cores)


def describe_machine(settings: Settings, path: Path | None) -> MachineFacts:
    """Describe this machine and the storage of a path."""
    torch: Any = sys.modules.get("torch")  # imports nothing
    return MachineFacts(
        cores=settings.cores,
        processor=cpu_name(),
        memory_bytes=available_memory(),
        storage=None if path is None else describe_storage(path),
        accelerator=str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else None,
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        emulated=settings.emulated,
    )


def describe_storage(path: Path) -> str | None:
    """Return the file system and device of a path, as the kernel names them."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(errors="replace").splitlines()]
        resolved = path.resolve()
    except OSError:
        return None
    holding = [mount for mount in mounts if resolved.is_relative_to(mount[1])]
    if not holding:
        return None
    device, _, kind = max(holding, key=lambda mount: len(mount[1]))[:3]
    return f"{kind} on {device}"
