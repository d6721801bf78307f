# SPDX-License-Identifier: Apache-2.0
"""`headrace.Loader`: a dataset as batches, epoch after epoch."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from headrace.errors import InvalidState
from headrace.formats import MAX_PIXELS
from headrace.loader._assembly import Assembly
from headrace.loader._iterator import LoaderIterator
from headrace.loader._options import (
    Color,
    Decode,
    Layout,
    OnError,
    Options,
    OutputName,
    Ragged,
    check_rate,
    check_torch_words,
    chosen_fields,
    dtype_name,
    worker_count,
)
from headrace.loader._place import Place
from headrace.loader._plan import obeyed_plan
from headrace.loader._recipe import make_recipe
from headrace.loader._state import LoaderState
from headrace.loader.batch._stats import LoaderStats
from headrace.loader.order._keys import check_seed
from headrace.loader.order._ranks import Ranks, find_ranks
from headrace.loader.supply import SupplyProvider, find_provider
from headrace.records import Dataset, open_dataset
from headrace.transforms import Compiled


class Loader:
    """Batches of a dataset: read, decoded and augmented by threads of C++, in an order that depends on the seed alone.

    Each iteration is one epoch and starts the next one, after a `break` too, unless `set_epoch` says which. One
    iteration runs at a time: a new one ends the one before it. Iterate in one process a rank; the loader divides the
    samples among ranks itself, so nothing should wrap it in a sampler.

    Args:
        dataset: A dataset or the path of one.
        batch_size: Samples a rank has in a batch.
        shuffle: Whether each epoch has an order of its own, a permutation of all samples.
        seed: For the order and the augmentations; None takes the dataset's, which is 0 unless it was opened with
            another.
        drop_last: Leave the last batch out if it is smaller. Otherwise ranks that would lack a sample repeat one from
            the start of the epoch, marked in `batch["_repeat"]`.
        transform: Declarative operations, then functions of a sample or a batch; None takes the dataset's.
        fields: Names of the fields to load; None is all.
        indices: Load only these samples: integers, a slice, or an array of booleans.
        weights: Draw samples with replacement, each as often as its weight says; one number a sample.
        num_workers: Worker threads. None is one per core; 0 works in the calling thread.
        batches_ahead: Batches that all workers together prepare ahead of the trainer; more if batches are so small
            that workers would idle.
        pin_memory: Copy batches to pinned memory, where there is CUDA.
        device: Copy batches to this device of PyTorch's, beside the training.
        decode: Where `hri` images are decoded: by `"cpu"`, or from their compressed bytes on the `"device"`, beside the
            training; all other formats always by the CPU. `"auto"` is the device where it is an accelerator, can do
            the transforms, and has more to decode than is worth the host's while. The order, the draws and the pixels
            are the same, those of a resize within a level.
        output: What arrays are: PyTorch's tensors, NumPy's arrays, or JAX's.
        rank: Which of `world_size` ranks this is; both None asks torch.distributed, if it is initialised.
        world_size: How many ranks train together.
        collate_fn: Called with a list of samples in place of stacking them.
        on_error: What becomes of a sample that cannot be loaded: its error is raised; the batch is one sample shorter;
            or another sample, chosen from seed, epoch and sample, takes its place. `stats` tells of each.
        dtype: Of the images; None is their own, and float32 where they are normalised.
        layout: `"CHW"` or `"HWC"`.
        ragged: What becomes of images that differ in shape: a list of them; `"pad"` fills them up to the largest, at
            the right and at the bottom, images with 0 and masks with 255, and puts rows and columns of each into
            `batch["_image_size"]`; `"error"` raises.
        color: `"auto"` gives gray, RGB, RGBA and CMYK images three channels and leaves all others as stored; `"RGB"`
            gives every image three channels; `"keep"` leaves all as stored; None takes the dataset's (`"auto"`).
        min_area: Boxes of which less than this many pixels come out are left out.
        direct_io: Read past the page cache, for datasets much larger than memory.
        plan: The plan that the dataset was built by, or the path of one; the loader checks that the dataset has its
            formats, and `stats` tells what it predicted.
        max_pixels: Refuse to decode more pixels of an image than this, or to make more of it: such a sample fails with
            `ImageTooLarge`. A crop of a format that can decode regions counts as its own pixels.
        approximate_jpeg: Let the decoder scale JPEGs down by powers of two before the resize, which is faster and
            changes the pixels.
        offload: An exchange folder, through which an offload worker (`headrace offload`) gives prepared batches from
            the tail of the epoch; or a `headrace.offload.Offload`, which also has the strategy by which they are taken.
            The batches are the same, in another order. Without an offload worker the loader makes all of them.
        torch_words: Arguments of PyTorch's DataLoader that have no meaning here are ignored if they do no harm
            (`persistent_workers`, `timeout`, …), and otherwise an error that says what to write.

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
        min_area: float = 1.0,
        direct_io: bool = False,
        plan: Mapping[str, Any] | str | PathLike[str] | None = None,
        max_pixels: int = MAX_PIXELS,
        approximate_jpeg: bool = False,
        offload: str | PathLike[str] | SupplyProvider | None = None,
        **torch_words: Any,
    ) -> None:
        if torch_words:
            check_torch_words(torch_words, inspect.signature(Loader).parameters)
        workers = worker_count(num_workers)
        if workers == 0 and decode == "auto":
            decode = "cpu"  # decoding on a device needs a thread
        provider, decode = find_provider(offload, decode)
        opened = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
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
            min_area=float(min_area),
            direct_io=bool(direct_io),
            approximate_jpeg=bool(approximate_jpeg),
            plan=obeyed_plan(opened, plan, chosen_fields(opened, fields)),
            decode=decode,
            max_pixels=max_pixels,
        )
        self._given_ranks = (rank, world_size)
        self._order = {
            "shuffle": bool(shuffle),
            "weights": weights,
            "transform": opened.transform if transform is None else transform,
            "provider": provider,
        }
        self._assemble()

    def _assemble(self) -> None:
        self._ranks()
        self._parts = Assembly(self.dataset, self._options, seed=self.seed, **self._order)
        self._place = Place(self._parts.first_state)
        self._iteration: weakref.ref[LoaderIterator] | None = None
        weakref.finalize(self, self._parts.workshop.drop).atexit = False  # then they are closed, not only dropped

    # Batches.

    def __len__(self) -> int:
        """Batches of a whole epoch, wherever the loader stands."""
        return len(self._parts.plan(self._ranks()))

    def __iter__(self) -> LoaderIterator:
        """Begin an epoch; an iteration that is under way ends."""
        self._end_iteration("another iteration of the same loader began")
        begun = self._place.start
        plan = self._parts.plan(self._ranks(), begun.samples, begun.stop)
        feed, state_after = self._parts.start(plan, begun)
        self._place.begin(state_after)
        iteration = LoaderIterator(
            self,
            feed,
            self._parts.meters,
            length=plan.remaining,
            yielded=self._place.advance,
        )
        self._iteration = weakref.ref(iteration)
        return iteration

    def _ranks(self) -> Ranks:
        return find_ranks(*self._given_ranks)

    def _running(self) -> LoaderIterator | None:
        iteration = None if self._iteration is None else self._iteration()
        return iteration if iteration is not None and iteration.active else None

    def _end_iteration(self, why: str) -> None:
        running = self._running()
        if running is not None:
            running.close(why)
        self._parts.workshop.end_feed()

    # What it was asked for.

    @property
    def batch_size(self) -> int:
        return self._options.batch_size

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that it loads."""
        return self._options.fields

    @property
    def transform(self) -> Any:
        """The transforms as they were given to the loader, or else to the dataset."""
        return self._order["transform"]

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any] | None:
        return self._options.collate_fn

    @property
    def output(self) -> OutputName:
        """Whose arrays it gives: "torch", "numpy" or "jax"."""
        return self._options.output

    @property
    def device(self) -> str | None:
        """The device that batches are copied to; None leaves them in the host's memory."""
        return self._options.device

    @property
    def num_workers(self) -> int:
        """The number of worker threads; one per core if None was given."""
        return self._options.num_workers

    @property
    def batches_ahead(self) -> int:
        """How many batches are in progress at a time, at most."""
        return self._options.batches_ahead

    @property
    def direct_io(self) -> bool:
        """Whether it reads past the page cache."""
        return self._options.direct_io

    # Epochs and state.

    @property
    def epoch(self) -> int:
        """The epoch under way, or the one that the next iteration starts."""
        return (self._place.start if self._running() is None else self._place.state).epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch. The epoch of a state that was loaded is gone on with, not begun."""
        self._place.set_epoch(epoch, iterating=self._running() is not None)

    def state_dict(self) -> dict[str, Any]:
        """Say, in a few numbers that JSON can hold, what has been yielded. Prefetched batches do not count."""
        return self._place.state.to_json()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration go on with the sample after those that the state has, with any batch and world size.

        Raises:
            InvalidState: The state is damaged or of another dataset, selection, seed or shuffle; or an iteration is
                under way, which it could not change any more.

        """
        if self._running() is not None:
            raise InvalidState("a state is loaded while an iteration is under way: load it before iter(loader)")
        self._place.load(LoaderState.from_json(state_dict))

    # What it does, and its end.

    @property
    def recipe(self) -> dict[str, Any]:
        """How samples become batches, as JSON (spec/recipe.md)."""
        return make_recipe(
            self._options, self._parts.compiled, self._parts.first_state, world_size=self._ranks().world_size
        )

    @property
    def decode_place(self) -> str:
        """Where `hri` images are decoded: "cpu" or "device"; what `decode="auto"` came to."""
        return self._parts.decode_place

    def stats(self) -> LoaderStats:
        """Return what was done since the loader was created, and how long each stage was busy.

        A `wait_seconds` near 0 means that the loader keeps up with the training. For one epoch, subtract:
        `loader.stats().since(earlier)`.
        """
        running = self._running()
        return self._parts.stats(0 if running is None else running.ready)

    def _limit_storage(self, rate: float | None) -> None:
        check_rate(rate)
        self._options = replace(self._options, storage_rate=rate)
        self._parts.limit_storage(rate)

    def close(self) -> None:
        """End the iteration under way and all threads, and close all files."""
        self._end_iteration("the loader was closed")
        self._parts.workshop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("dataset", "seed", "_options", "_given_ranks", "_order", "_place")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        place = self._place
        self._assemble()
        self._place = place

    def __repr__(self) -> str:
        ranks = self._ranks()
        share = "" if ranks.world_size == 1 else f", rank {ranks.rank} of {ranks.world_size}"
        return f"<Loader of {self.dataset!r}: {len(self)} batches of {self.batch_size}{share}>"


def limit_storage(loader: Loader, bytes_per_second: float | None) -> None:
    """Emulate slower storage: let a loader read at most this many bytes per second, cached or not; None is no limit.

    For `headrace profile` and `headrace plan`. It applies at once, also during an epoch, and starts the loader's
    threads.
    """
    loader._limit_storage(bytes_per_second)  # noqa: SLF001 - the one way to it for other packages


def storage_limit(loader: Loader) -> float | None:
    """Return what `limit_storage` has set, in bytes per second; None is no limit."""
    return loader._options.storage_rate  # noqa: SLF001 - as above


def compiled_transform(loader: Loader) -> Compiled:
    """Return the loader's transforms as it runs them: compiled, with dtype, layout and color resolved."""
    return loader._parts.compiled  # noqa: SLF001 - as above
