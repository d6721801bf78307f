# SPDX-License-Identifier: Apache-2.0
"""`headrace.Mixture`: several datasets with weights, as one dataset for a loader."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any, Literal, TypeAlias

from headrace.errors import InvalidState
from headrace.loader.order._interleave import MAX_PARTS, Interleave
from headrace.loader.order._mixture import MixtureOrder, all_end, check_length, first_end, shares_of
from headrace.loader.sampling._joined import Joined
from headrace.loader.sampling._positions import UnitSamples
from headrace.loader.sampling._protocol import EpochRequest, EpochSamples, OpenSampler, Progress
from headrace.records import Dataset, open_dataset
from headrace.records.index.numbers import MAX_COPIES

Stop: TypeAlias = Literal["first", "all"] | int
Part: TypeAlias = str | PathLike[str] | Dataset


class Mixture(Joined):
    """Several datasets, mixed by weight, for `headrace.Loader(mixture, …)`.

    At every point of an epoch, the share of each dataset is within one sample of its target, over all ranks. The
    samples of each dataset come in a permutation of their own, and a second time only after all have come once; then
    with other random draws. An epoch starts at once, whatever the sizes, and resumes with another batch or world size.

    As a sequence (`mixture[i]`, `len`) it has the samples of the datasets one after the other, without weights.

    Args:
        parts: Datasets or their paths, each with its weight: `{"a.hr": 0.7, "b.hr": 0.3}`. Weights need no sum. A list
            without weights is mixed by size: each sample comes once.
        stop: When an epoch ends: before the `"first"` dataset would repeat a sample; after `"all"` samples of all
            datasets have come; or after this number of samples.
        temperature: Weights are sizes to the power of 1 / temperature: 1 is by size, 5 is nearly even. Without weights.
        exact: The weights are counts: an epoch has exactly so many samples of each dataset.
        fields: Fields to load; None is those that all datasets have. Their types must be equal.
        transforms: Transforms of single datasets, by position or path as in `parts`. The others have the loader's.
            They must be declarative and of single samples.
        same_classes: Whether all datasets must have the same classes. False keeps the numbers of labels as they are.

    """

    def __init__(
        self,
        parts: Mapping[Any, float] | Sequence[Part],
        *,
        stop: Stop = "first",
        temperature: float | None = None,
        exact: bool = False,
        fields: Iterable[str] | None = None,
        transforms: Mapping[Any, Any] | None = None,
        same_classes: bool = True,
    ) -> None:
        if isinstance(parts, str | PathLike | Dataset):
            raise TypeError(f"a mixture must have a dict or a list of datasets; got {parts!r}: write [{parts!r}]")
        weights = list(parts.values()) if isinstance(parts, Mapping) else None
        given: list[Part] = list(parts)
        if not given or len(given) > MAX_PARTS:
            raise ValueError(f"a mixture must have 1 to {MAX_PARTS} datasets; got {len(given)}")
        opened = [part if isinstance(part, Dataset) else open_dataset(part) for part in given]
        for part in opened:
            if not len(part) or isinstance(part, Joined) or getattr(part, "patch", None) is not None:
                raise ValueError(f"each part must be a dataset with samples, no mixture and no patches; got {part!r}")
        super().__init__(opened, fields=fields, same_classes=same_classes)
        self.names = [str(part) if isinstance(part, str | PathLike) else str(part.path) for part in given]
        self._given = given
        self.stop, self.exact = _checked_stop(stop, exact=exact), bool(exact)
        self.part_transforms = self._by_part(transforms or {}, "transforms")
        if weights is not None:
            if temperature is not None:
                raise ValueError("temperature must not be set together with weights, which it replaces")
            self.shares = self._shares_of(weights)
        elif exact:
            raise ValueError("exact needs the number of samples of each dataset: {'a.hr': 1000, 'b.hr': 50}")
        else:
            self.shares = self._by_size(1.0 if temperature is None else temperature)
        self.check(self.shares)

    def _by_size(self, temperature: float) -> list[int]:
        if not isinstance(temperature, int | float) or not 0.01 <= temperature < math.inf:
            raise ValueError(f"temperature must be a number of at least 0.01; got {temperature!r}")
        if temperature == 1:
            return self.lengths
        most = max(self.lengths)
        return shares_of([(n / most) ** (1 / temperature) for n in self.lengths])

    def _shares_of(self, weights: Sequence[Any]) -> list[int]:
        for name, weight in zip(self.names, weights, strict=True):
            kind = int if self.exact else int | float
            if not isinstance(weight, kind) or isinstance(weight, bool) or not 0 <= weight < math.inf:
                what = "a count of samples" if self.exact else "a finite number"
                raise ValueError(f"each weight must be {what} >= 0; {name} has {weight!r}")
        if not any(weights):
            raise ValueError("at least one weight must be above 0")
        shares = [operator.index(weight) for weight in weights] if self.exact else shares_of(weights)
        for name, weight, share in zip(self.names, weights, shares, strict=True):
            if weight and not share:
                raise ValueError(f"the weight of {name}, {weight}, is too small beside the others: omit the dataset")
        return shares

    def _by_part(self, given: Mapping[Any, Any], what: str) -> dict[int, Any]:
        """Return values by the number of the part; keys are numbers, or what names a part."""
        found = {}
        for key, value in given.items():
            number = next((k for k, part in enumerate(self._given) if part is key or (part == key)), None)
            if number is None and isinstance(key, int) and 0 <= key < len(self._given):
                number = key
            if number is None:
                raise ValueError(f"{what} has {key!r}, which is no part; the parts are {', '.join(self.names)}")
            found[number] = value
        return found

    def check(self, shares: list[int]) -> None:
        """Raise ValueError unless an epoch can have these shares."""
        Interleave(shares)
        n = self.samples_per_epoch(shares)
        for name, share, length in zip(self.names, shares, self.lengths, strict=True):
            if n * share // sum(shares) // length >= MAX_COPIES - 1:
                raise ValueError(f"{name} would be repeated more than {MAX_COPIES} times per epoch: set a smaller stop")

    @property
    def weights(self) -> dict[str, float]:
        """The share of each dataset, by its path; from the next epoch on, if they were changed."""
        total = sum(self.shares)
        return {name: share / total for name, share in zip(self.names, self.shares, strict=True)}

    def set_weights(self, weights: Mapping[Any, float] | Sequence[float]) -> None:
        """Set the weights from the next epoch on; counts, if the mixture is `exact`. Call it on every rank.

        A loader's state contains them: a resumed run has those of the checkpoint.
        """
        if isinstance(weights, Mapping):
            found = self._by_part(weights, "weights")
            missing = [name for k, name in enumerate(self.names) if k not in found]
            if missing:
                raise ValueError(f"weights must have every part; {', '.join(missing)} is missing (0 leaves it out)")
            weights = [found[k] for k in range(len(self.names))]
        if len(weights) != len(self.names):
            raise ValueError(f"there must be {len(self.names)} weights, one per part; got {len(weights)}")
        shares = self._shares_of(weights)
        self.check(shares)
        self.shares = shares

    def samples_per_epoch(self, shares: Sequence[int] | None = None) -> int:
        """Return the number of samples of an epoch over all ranks, with the weights of now."""
        shares = self.shares if shares is None else shares
        if self.exact:
            return check_length(sum(shares))
        if isinstance(self.stop, int):
            return self.stop
        return check_length((first_end if self.stop == "first" else all_end)(shares, self.lengths))

    def sampler(self, *, shuffle: bool) -> MixtureSampler:
        """Return the order as a sampler, for a loader."""
        return MixtureSampler(self, shuffle=shuffle)


class MixtureSampler(OpenSampler):
    """The order of a mixture. The weights are those that the mixture has when an epoch starts."""

    def __init__(self, mixture: Mixture, *, shuffle: bool) -> None:
        self._mixture, self._shuffle = mixture, shuffle
        rows = [None if part.rows is None else part.rows.tobytes() for part in mixture.parts]
        self.identity = f"mixture {shuffle} {mixture.stop} {mixture.exact} {_digest(rows)}"
        self._order: tuple[Any, MixtureOrder] | None = None

    def open(self, dataset: Dataset) -> OpenSampler:
        """Return itself: it was made for one mixture."""
        del dataset
        return self

    def start(self, request: EpochRequest) -> EpochSamples:
        shares = self._mixture.shares
        if request.progress is not None:
            shares = self._parsed(request.progress)
        key = (tuple(shares), request.seed)
        if self._order is None or self._order[0] != key:
            n = self._mixture.samples_per_epoch(shares)
            made = MixtureOrder(shares, self._mixture.lengths, n=n, seed=request.seed, shuffle=self._shuffle)
            self._order = key, made
        return MixtureSamples(self._order[1], request, self._mixture)

    def settings(self) -> Progress:
        return {"shares": list(self._mixture.shares)}

    def load_settings(self, settings: Progress) -> None:
        self._mixture.shares = self._parsed(settings)

    def _parsed(self, tree: Progress) -> list[int]:
        shares = tree.get("shares")
        parts = len(self._mixture.parts)
        if not isinstance(shares, list) or len(shares) != parts or not all(type(share) is int for share in shares):
            raise InvalidState(f"the state is damaged: a mixture of {parts} parts has the shares {shares!r}")
        try:
            self._mixture.check(shares)
        except ValueError as error:
            raise InvalidState(f"the state is damaged: {error}") from error
        return list(shares)


class MixtureSamples(UnitSamples):
    """The batches of one epoch of a mixture."""

    def __init__(self, order: MixtureOrder, request: EpochRequest, mixture: Mixture) -> None:
        super().__init__(order, request)
        self._mixed, self._mixture, self._request = order, mixture, request

    def progress_after(self, g: int) -> Progress:
        return {**super().progress_after(g), "shares": list(self._mixed.interleave.shares)}

    def stats(self, g: int) -> Mapping[str, Any]:
        """Return the samples of each part so far, on all ranks; their shares, and the target of these."""
        interleave = self._mixed.interleave
        counts = interleave.counts(self.samples_after(g), self._request.epoch)
        total = max(1, sum(counts))
        return {
            "parts": {
                f"{k}: {name}": {"samples": count, "share": count / total, "target": share / interleave.total}
                for k, (name, count, share) in enumerate(
                    zip(self._mixture.names, counts, interleave.shares, strict=True)
                )
            }
        }


def _digest(rows: list[bytes | None]) -> str:
    digest = blake2b(digest_size=16)
    for own in rows:
        digest.update(b"all" if own is None else len(own).to_bytes(8, "little") + own)
    return digest.hexdigest()


def _checked_stop(stop: Any, *, exact: bool) -> Stop:
    if stop in ("first", "all"):
        return str(stop)  # type: ignore[return-value]
    if isinstance(stop, bool) or not isinstance(stop, int) or stop < 1:
        raise ValueError(f"stop must be 'first', 'all' or a number of samples; got {stop!r}")
    if exact:
        raise ValueError(f"stop must not be a number together with exact, whose counts add up to an epoch; got {stop}")
    return check_length(stop)


def check_mixture(decode: str, plan: object) -> Literal["cpu"]:
    """Return where the images of a mixture are decoded: on the CPU. Raises ValueError for what does not work."""
    if decode == "device":
        raise ValueError("decode must be 'cpu' or 'auto' with a mixture; got 'device'")
    if plan is not None:
        raise ValueError("plan must not be set together with a mixture: each dataset has a plan of its own")
    return "cpu"
