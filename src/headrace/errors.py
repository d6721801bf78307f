# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Headrace, one class for each way to be wrong.

    HeadraceError
    ├── CorruptImage        (ValueError)   the bytes are no valid image: damaged, truncated or hostile
    ├── UnsupportedImage    (ValueError)   an image, or a file, of a kind that the format or its reader does not know
    ├── ImageTooLarge       (ValueError)   decoding would produce more than `max_pixels`
    ├── InvalidRegion       (ValueError)   a region that does not lie within its image
    ├── InvalidOutput       (ValueError)   an `out` array that the decoded image does not fit
    ├── InvalidMetadata     (ValueError)   a key or value that a file cannot carry
    ├── BadSource           (ValueError)   a source that cannot be imported: damaged, incomplete, unknown or hostile
    ├── CorruptDataset      (ValueError)   a dataset's files are damaged, or do not belong together
    ├── UnsupportedDataset  (ValueError)   a dataset of a version or kind that this reader does not know
    ├── BuildError                         a dataset cannot be built: a bad sample, a full disk, a taken destination
    ├── LoaderError                        a loader cannot go on: closed, forked, overtaken, or out of good samples
    │   ├── EngineClosed                   the threads of a loader were stopped while something waited for them
    │   └── PlanMismatch    (ValueError)   a dataset has not what the loader's plan wants
    ├── ExchangeError       (OSError)      the exchange folder cannot be used: gone, read-only, full or misnamed
    ├── BadPreparedBatch    (ValueError)   a prepared batch not to be trained on: damaged, stale, foreign, declined
    ├── ProfileError        (ValueError)   something that cannot be profiled: no batches, or asked for in vain
    ├── TransformError      (ValueError)   an augmentation that cannot be done, as a crop larger than its image
    ├── InvalidReport       (ValueError)   a file that is no report of a profile, or a figure that none can hold
    ├── InvalidState        (ValueError)   a loader's state that is damaged, of another run, or loaded too late
    ├── UnknownTarget       (ValueError)   a SIMD target that this machine does not have
    ├── InfeasiblePlan      (ValueError)   no mix of formats fits the disk budget
    └── MissingExtra        (ImportError)  an optional package is needed and not installed

A wrong type of argument is a plain TypeError.
"""

from __future__ import annotations

__all__ = [
    "BadPreparedBatch",
    "BadSource",
    "BuildError",
    "CorruptDataset",
    "CorruptImage",
    "EngineClosed",
    "ExchangeError",
    "HeadraceError",
    "ImageTooLarge",
    "InfeasiblePlan",
    "InvalidMetadata",
    "InvalidOutput",
    "InvalidRegion",
    "InvalidReport",
    "InvalidState",
    "LoaderError",
    "MissingExtra",
    "PlanMismatch",
    "ProfileError",
    "TransformError",
    "UnknownTarget",
    "UnsupportedDataset",
    "UnsupportedImage",
]


class HeadraceError(Exception):
    """Anything that Headrace itself finds wrong."""

    index: int | None = None
    """Which of many images is meant, where a call was given many."""


class CorruptImage(HeadraceError, ValueError):
    """The bytes are no valid image. Fetch the file again or restore it; nothing of it was trusted."""

    offset: int | None = None
    """Where in the file, in bytes from its start."""
    tile: int | None = None
    """Which tile, in raster order, if a single one is meant."""


class UnsupportedImage(HeadraceError, ValueError):
    """An image that the format cannot hold, or a file that this version cannot read."""


class ImageTooLarge(HeadraceError, ValueError):
    """Decoding would produce more pixels than the caller allows."""


class InvalidRegion(HeadraceError, ValueError):
    """A region that is empty or does not lie within its image."""


class InvalidOutput(HeadraceError, ValueError):
    """An `out` array of another shape, dtype or layout than the decoded image needs."""


class InvalidMetadata(HeadraceError, ValueError):
    """A metadata key or value that a file cannot carry."""


class BadSource(HeadraceError, ValueError):
    """A source that cannot be imported; the message names the file or sample and what is wrong with it."""


class CorruptDataset(HeadraceError, ValueError):
    """Files of a dataset are damaged, missing, or do not belong together."""


class UnsupportedDataset(HeadraceError, ValueError):
    """A dataset of a version or kind that this version cannot read."""


class BuildError(HeadraceError):
    """A dataset cannot be built; the message names the sample or file, what was found and how to go on."""


class LoaderError(HeadraceError):
    """A loader cannot go on; the message says why and what to do."""


class EngineClosed(LoaderError):
    """The threads of a loader were stopped while something waited for them."""


class PlanMismatch(LoaderError, ValueError):
    """A dataset has not the fields, formats or renditions that the loader's plan wants; it was built by another."""


class ExchangeError(HeadraceError, OSError):
    """The folder through which host and offload worker exchange batches cannot be used."""


class BadPreparedBatch(HeadraceError, ValueError):
    """A prepared batch that must not be trained on; the host makes the batch itself."""

    kind: str = "damaged"
    """`damaged`, `foreign`, `unreadable` or `declined`."""


class ProfileError(HeadraceError, ValueError):
    """Something that cannot be profiled; the message says what was asked for and what would do."""


class TransformError(HeadraceError, ValueError):
    """An augmentation that cannot be done, as a crop larger than its image."""


class InvalidReport(HeadraceError, ValueError):
    """A file that is no report of a profile, is damaged or of another version; or a figure that no report can hold."""


class InvalidState(HeadraceError, ValueError):
    """A loader's state that is damaged, belongs to another run, or is loaded while an iteration is in progress."""


class UnknownTarget(HeadraceError, ValueError):
    """A SIMD target that this build or this machine does not have."""


class InfeasiblePlan(HeadraceError, ValueError):
    """No mix of formats fits the disk budget; the message says how much is needed."""


class MissingExtra(HeadraceError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""
