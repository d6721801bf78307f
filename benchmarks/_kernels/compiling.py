# SPDX-License-Identifier: Apache-2.0
"""Compile every kernel for every target, in several processes, and read what each one needs."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks._kernels import variants
from benchmarks._kernels.listing import Listing, listing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Compiled:
    """A variant of a kernel, compiled for a target."""

    target: str
    operation: str
    name: str
    warps: int
    listing: Listing

    @property
    def fast_path(self) -> bool:
        """Whether mode `fast` runs it."""
        return self.operation in variants.FAST_PATH

    def row(self) -> dict[str, Any]:
        """Return what the report shows."""
        return {
            "target": self.target,
            "kernel": self.name,
            "fast_path": self.fast_path,
            "warps": self.warps,
            "registers": self.listing.registers,
            "spills": self.listing.spills,
            "shared_bytes": self.listing.shared_bytes,
            "instructions": len(self.listing.opcodes),
        }


def compile_all(targets: Sequence[str], jobs: int) -> Iterator[Compiled]:
    """Yield every variant for every target, in order; Triton's cache keeps what has not changed."""
    tasks = [(target, i) for target in targets for i, _ in enumerate(variants.variants(variants.TARGETS[target]))]
    # Triton's compiler has threads and does not survive a fork: start new processes.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        yield from pool.map(_compile, tasks, chunksize=4)


def spilled(compiled: Sequence[Compiled]) -> list[str]:
    """Return the kernels of the fast path that spill registers; there must be none."""
    return [f"{each.name} for {each.target}" for each in compiled if each.fast_path and each.listing.spills]


def _compile(task: tuple[str, int]) -> Compiled:
    target, number = task
    variant = list(variants.variants(variants.TARGETS[target]))[number]
    made = listing(variant.compile(variants.TARGETS[target]))
    return Compiled(target, variant.operation, variant.name, variant.warps, made)
