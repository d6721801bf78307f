# SPDX-License-Identifier: Apache-2.0
"""`headrace.Loader`: the batches of a dataset, epoch after epoch."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, NoReturn, Self

import numpy.typing as npt

from headrace.errors import InvalidState, LoaderError
from headrace.formats import MAX_PIXELS
from headrace.loader._assembly import Assembly
from headrace.loader._iterator import LoaderIterator
from headrace.loader._options import (
    Color,
    Decode,
    Layout,
    OnError,
    Options,
    Ragged,
    Ranks,
    at_least,
    check_plan,
    check_torch_arguments,
    chosen_fields,
    dtype_name,
    find_ranks,
)
from headrace.loader._patches import chosen_transform
from headrace.loader._pipeline import Feed
from headrace.loader._sampler import EpochBatchSampler, EpochSampler
from headrace.loader._state import EpochCursor, LoaderState, check_version
from headrace.loader.batch._stats import LoaderStats
from headrace.loader.batch.output import OutputName
from headrace.loader.order._keys import check_epoch, check_seed
from headrace.loader.order._order import EpochBatches
from headrace.loader.sampling._mixture import Mixture, check_mixture
from headrace.loader.sampling._run import check_sampled
from headrace.loader.sampling._torch_samplers import find_sampler
from headrace.loader.supply import SupplyProvider, find_provider
from headrace.records import Dataset, open_dataset
from headrace.transforms import Compiled
from headrace.units import usable_cores


class Loader:
    """Batches of a dataset, read, decoded and augmented by C++ threads. The order depends on the seed alone.

    Each iteration is one epoch and starts the next one, also after a `break`, unless `set_epoch` says otherwise; only
    an iteration that returned no batch does not count. A new iteration ends the one before it. Use one process per
    rank; the loader divides the samples among ranks itself and needs no sampler.

    Args:
        dataset: A dataset or its path, a `headrace.Mixture` of several, or `headrace.patches` of one.
        batch_size: Samples per batch and rank.
        shuffle: Whether each epoch has a new order, a permutation of all samples.
        seed: Seed of the order and the augmentations; None uses the dataset's seed (default 0).
        drop_last: Omit the last batch if it is smaller. Otherwise ranks that lack a sample repeat one from the start
            of the epoch, marked in `batch["_repeat"]`.
        transform: Declarative operations, then functions of a sample or a batch; None uses the dataset's.
        fields: Names of the fields to load; None loads all.
        indices: Load only these samples: integers, a slice, or a boolean array.
        weights: Draw samples with replacement, with these relative frequencies; one number per sample.
        sampler: Which samples each batch has: one of `headrace.samplers`, such as `Buckets()`, or your own. A sampler
            of PyTorch works too, and gives the samples of this rank; see the how-to about samplers for what its resume
            means.
        batch_sampler: A batch sampler of PyTorch, which gives the batches of this rank.
        num_workers: Worker threads. None is one per core; 0 works in the calling thread.
        batches_ahead: Batches that all workers together prepare ahead; more if batches are so small that workers would
            idle.
        pin_memory: Copy batches to pinned memory, if CUDA is available.
        device: Copy batches to this PyTorch device, in parallel with the training.
        decode: Where `hri` images are decoded: on the `"cpu"`, or from their compressed bytes on the `"device"`.
            `"auto"` uses the device if it is a GPU, supports the transforms, and the images are large enough. Order and
            augmentations are the same; so are the pixels, except that resized ones may differ by 1. The CPU decodes
            all other formats.
        output: `"torch"` tensors, `"numpy"` arrays or `"jax"` arrays.
        rank: The rank of this process; None asks torch.distributed or jax.distributed, if it is initialized.
        world_size: The number of ranks; None as for `rank`.
        collate_fn: Called with a list of samples instead of stacking them.
        on_error: If a sample cannot be loaded: `"raise"` its error, `"skip"` it, or `"replace"` it by another sample,
            chosen from seed, epoch and sample. `stats` lists the errors.
        dtype: Dtype of the images; None keeps theirs, or float32 if they are normalized.
        layout: `"CHW"` or `"HWC"`.
        ragged: If images differ in shape: `"list"` returns a list; `"pad"` pads them at the right and the bottom to the
            largest, images with 0 and masks with 255, and returns heights and widths in `batch["_image_size"]`;
            `"error"` raises.
        color: `"auto"` converts gray, RGB, RGBA and CMYK images to three channels and keeps all others; `"RGB"`
            converts every image; `"keep"` converts none; None uses the dataset's (`"auto"`).
        min_area: Boxes are removed if less than this many pixels of them remain; None uses the dataset's (1).
        min_visibility: Boxes are removed if a smaller share of them than this remains, 0 to 1; None uses the dataset's
            (0).
        direct_io: Bypass the page cache, for datasets much larger than memory.
        plan: The plan that the dataset was built with, or its path. The loader checks that the dataset has these
            formats, and `stats` reports what the plan predicted.
        max_pixels: Refuse to decode or make more pixels of an image than this: the sample fails with `ImageTooLarge`.
            A crop counts as its own pixels if the format can decode regions.
        approximate_jpeg: Let the decoder scale JPEGs down by powers of two before a resize. It is faster and changes
            the pixels.
        offload: An exchange folder, through which an offload worker (`headrace offload`) supplies prepared batches from
            the end of the epoch; or a `headrace.offload.Offload`, which also selects the strategy. The batches are the
            same, in another order. Without an offload worker the loader makes all batches.
        torch_arguments: Arguments of PyTorch's DataLoader that are not needed here (`persistent_workers`, `timeout`, …)
            are ignored. All others raise an error that says what to use instead.

    """

    def __init__(
        self,
        dataset: str | PathLike[str] | Dataset,
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        seed: int | None = None,
        drop_last: bool = False,
        transform: Any = None,
        fields: Iterable[str] | None = None,
        indices: Any = None,
        weights: npt.ArrayLike | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | None = None,
        batches_ahead: int = 2,
        pin_memory: bool = False,
        device: Any = None,
        decode: Decode = "auto",
        output: OutputName = "torch",
        rank: int | None = None,
        world_size: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        on_error: OnError = "raise",
        dtype: Any = None,
        layout: Layout = "CHW",
        ragged: Ragged = "list",
        color: Color | None = None,
        min_area: float | None = None,
        min_visibility: float | None = None,
        direct_io: bool = False,
        plan: Mapping[str, Any] | str | PathLike[str] | None = None,
        max_pixels: int = MAX_PIXELS,
        approximate_jpeg: bool = False,
        offload: str | PathLike[str] | SupplyProvider | None = None,
        **torch_arguments: Any,
    ) -> None:
        if torch_arguments:
            check_torch_arguments(torch_arguments, inspect.signature(Loader).parameters)
        workers = usable_cores() if num_workers is None else at_least("num_workers", num_workers, 0)
        if workers == 0 and decode == "auto":
            decode = "cpu"  # decoding on a device needs a thread
        provider, decode = find_provider(offload, decode)
        opened = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
        if isinstance(opened, Mixture):
            decode = check_mixture(decode, plan)
        self.dataset = opened if indices is None else opened.select(indices)
        self.seed = check_seed(opened.seed if seed is None else seed)
        self._options = Options(
            batch_size=batch_size,
            drop_last=bool(drop_last),
            fields=chosen_fields(opened, fields),
            num_workers=workers,
            min_batches_ahead=batches_ahead,
            pin_memory=bool(pin_memory),
            device=None if device is None else str(device),
            output=output,
            collate_fn=collate_fn,
            on_error=on_error,
            dtype=dtype_name(dtype),
            layout=layout,
            ragged=ragged,
            color=opened.color if color is None else color,
            box_filter=opened.box_filter.replaced(min_area, min_visibility),
            direct_io=bool(direct_io),
            approximate_jpeg=bool(approximate_jpeg),
            plan=check_plan(opened, plan, chosen_fields(opened, fields)),
            decode=decode,
            max_pixels=max_pixels,
        )
        self._given_ranks = (rank, world_size)
        self._order = {
            "shuffle": bool(shuffle),
            "weights": weights,
            "transform": chosen_transform(self.dataset, transform, provider),
            "provider": provider,
            "sampler": find_sampler(opened, sampler, batch_sampler, shuffle=bool(shuffle), weights=weights),
        }
        check_sampled(self._order["sampler"], provider, batch_sampler, batch_size, drop_last=bool(drop_last))
        self._assemble()

    def _assemble(self) -> None:
        self._ranks()
        self._parts = Assembly(self.dataset, self._options, seed=self.seed, **self._order)
        self._cursor = EpochCursor(self._parts.first_state)
        self._iteration: weakref.ref[LoaderIterator] | None = None
        weakref.finalize(self, self._parts.drop).atexit = False  # at exit they are closed instead

    def __len__(self) -> int:
        """Return the number of batches in a complete epoch."""
        return self._parts.length(self._ranks())

    def __iter__(self) -> LoaderIterator:
        """Start an epoch; an iteration in progress ends."""
        self._end_iteration("another iteration of the same loader started")
        self._cursor.return_unused()
        feed, length = self._start_feed()
        iteration = LoaderIterator(self, feed, self._parts.meters, self._cursor, length=length)
        self._iteration = weakref.ref(iteration)
        return iteration

    def _start_feed(self) -> tuple[Feed, int]:
        """Return the batches from where the cursor is, and their number."""
        state = self._cursor.start
        feed, length, state_after = self._parts.start(self._ranks(), state)
        self._cursor.start_iteration(state_after, length)
        return feed, length

    def _ranks(self) -> Ranks:
        return find_ranks(*self._given_ranks)

    def _running(self) -> LoaderIterator | None:
        iteration = None if self._iteration is None else self._iteration()
        return iteration if iteration is not None and iteration.active else None

    def _end_iteration(self, why: str) -> None:
        running = self._running()
        if running is not None:
            running.close(why)
        self._parts.end_feed()

    @property
    def batch_size(self) -> int:
        return self._options.batch_size

    @property
    def drop_last(self) -> bool:
        return self._options.drop_last

    @property
    def rank(self) -> int:
        """The rank of this process: as given, or asked now."""
        return self._ranks().rank

    @property
    def world_size(self) -> int:
        """The number of ranks: as given, or asked now."""
        return self._ranks().world_size

    @property
    def sampler(self) -> EpochSampler:
        """The samples of this rank in the next epoch, in order, and `set_epoch`: for reading."""
        return EpochSampler(self._next_batches, self.set_epoch)

    def _next_batches(self) -> EpochBatches:
        if self._running() is None:
            self._cursor.return_unused()
        if self._parts.sampling is not None:
            raise LoaderError("loader.sampler cannot list the samples of a loader with a sampler or a mixture")
        return self._parts.batches_from(self._ranks(), self._cursor.start)

    @property
    def batch_sampler(self) -> EpochBatchSampler:
        """Sizes and `set_epoch`, for trainers that read them. Only the loader itself makes batches of it."""
        return EpochBatchSampler(self.sampler, self.batch_size, len(self), drop_last=self.drop_last)

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(
            "a headrace.Loader has whole batches, in order: iterate over it. It needs no DataLoader and no "
            "DistributedSampler around it. For single samples use loader.dataset[i]"
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the loaded fields."""
        return self._options.fields

    @property
    def transform(self) -> Any:
        """The transform as it was passed to the loader, or else to the dataset."""
        return self._order["transform"]

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any] | None:
        return self._options.collate_fn

    @property
    def output(self) -> OutputName:
        """What arrays are: "torch", "numpy" or "jax"."""
        return self._options.output

    @property
    def device(self) -> str | None:
        """The device that batches are copied to; None if they stay in host memory."""
        return self._options.device

    @property
    def num_workers(self) -> int:
        """The number of worker threads."""
        return self._options.num_workers

    @property
    def batches_ahead(self) -> int:
        """The maximum number of batches in progress."""
        return self._options.batches_ahead

    @property
    def direct_io(self) -> bool:
        """Whether reads bypass the page cache."""
        return self._options.direct_io

    @property
    def epoch(self) -> int:
        """The epoch in progress, or the one that the next iteration starts."""
        if self._running() is not None:
            return self._cursor.state.epoch
        self._cursor.return_unused()
        return self._cursor.start.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration use this epoch. If it is the epoch of a state that was loaded, it continues there.

        An iteration that has not returned a batch yet uses it too: Lightning calls `iter` first.
        """
        running = self._running()
        if running is None or not running.unused:
            self._cursor.set_epoch(epoch, iterating=running is not None)
        elif check_epoch(epoch) != self._cursor.state.epoch:
            self._parts.end_feed()
            self._cursor.set_epoch(epoch, iterating=False)
            running.replace(*self._start_feed())

    def state_dict(self) -> dict[str, Any]:
        """Return what has been returned so far, as small JSON. Prefetched batches do not count."""
        return self._cursor.state.to_json()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration continue after the samples of the state. Batch size and world size may differ.

        Raises:
            InvalidState: The state is damaged or of another dataset, selection, seed or shuffle; or an iteration is in
                progress.

        """
        if self._running() is not None:
            raise InvalidState("a state cannot be loaded during an iteration: load it before iter(loader)")
        state = LoaderState.from_json(state_dict)
        check_version(state, self.dataset)
        self._cursor.load(state, self._parts.load_settings)

    def skip_batches(self, batches: int) -> None:
        """Let the next iteration omit this many batches from the start of its epoch; they are not loaded.

        For trainers that count batches themselves. A state is the better way: it also fits another batch size and
        world size. With an offload worker the batches have another order, so only a state can continue it.
        """
        if self._running() is not None:
            raise LoaderError("batches cannot be skipped during an iteration: skip them before iter(loader)")
        if self._parts.supplied:
            raise LoaderError("batches cannot be counted with an offload worker: use load_state_dict")
        if self._parts.sampling is not None:
            raise LoaderError("batches cannot be counted with a sampler or a mixture: use load_state_dict")
        plan = self._parts.plan(self._ranks())
        if at_least("batches", batches, 0) > len(plan):
            raise ValueError(f"batches must be at most the {len(plan)} of an epoch; got {batches}")
        self._cursor.skip(plan.samples_after(batches))

    @property
    def recipe(self) -> dict[str, Any]:
        """How samples become batches, as JSON (spec/recipe.md)."""
        return self._parts.recipe(self._ranks().world_size)

    @property
    def decode_place(self) -> str:
        """Where `hri` images are decoded: "cpu" or "device"."""
        return self._parts.decode_place

    def stats(self) -> LoaderStats:
        """Return counts and busy seconds since the loader was created.

        If `wait_seconds` is near 0, the loader keeps up with the training. For the time since an earlier call, use
        `loader.stats().since(earlier)`.
        """
        running = self._running()
        return self._parts.stats(0 if running is None else running.ready, self._cursor.batches)

    def close(self) -> None:
        """End the iteration in progress and all threads, and close all files."""
        self._end_iteration("the loader was closed")
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("dataset", "seed", "_options", "_given_ranks", "_order", "_cursor")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        cursor = self._cursor
        self._assemble()
        self._cursor = cursor

    def __repr__(self) -> str:
        ranks = self._ranks()
        share = "" if ranks.world_size == 1 else f", rank {ranks.rank} of {ranks.world_size}"
        return f"<Loader of {self.dataset!r}: {len(self)} batches of {self.batch_size}{share}>"


def limit_storage(loader: Loader, bytes_per_second: float | None) -> None:
    """Emulate slower storage: let a loader read at most this many bytes per second, cached or not; None: no limit.

    For `headrace profile` and `headrace plan`. It applies at once, also during an epoch, and starts the loader's
    threads.
    """
    loader._options = replace(loader._options, storage_rate=bytes_per_second)  # noqa: SLF001 - not a method:
    loader._parts.limit_storage(bytes_per_second)  # noqa: SLF001 - users of a loader do not need it


def storage_limit(loader: Loader) -> float | None:
    """Return the limit that `limit_storage` has set, in bytes per second; None: no limit."""
    return loader._options.storage_rate  # noqa: SLF001 - as above


def compiled_transform(loader: Loader) -> Compiled:
    """Return the loader's compiled transforms, with dtype, layout and color resolved."""
    return loader._parts.compiled  # noqa: SLF001 - as above
