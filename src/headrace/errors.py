# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Headrace: `HeadraceError`, and one class per kind of failure.

Most are also the built-in exception that fits, such as ValueError or OSError. An argument of the wrong type raises
TypeError.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base class of all errors that Headrace raises."""

    index: int | None = None
    """Position of the image, for calls with many images."""


class CorruptImage(HeadraceError, ValueError):
    """The bytes are not a valid image. Download the file again or restore it."""

    offset: int | None = None
    """Offset of the damage in the file, in bytes."""
    tile: int | None = None
    """Number of the damaged tile, in raster order, if only one is known to be damaged."""


class UnsupportedImage(HeadraceError, ValueError):
    """The format cannot store the image, or this version cannot read the file."""


class ImageTooLarge(HeadraceError, ValueError):
    """Decoding would produce more pixels than the caller allows."""


class InvalidRegion(HeadraceError, ValueError):
    """A region is empty or not within its image."""


class InvalidOutput(HeadraceError, ValueError):
    """An `out` array does not have the shape, dtype or layout of the decoded image."""


class InvalidMetadata(HeadraceError, ValueError):
    """A file cannot store a metadata key or value."""


class BadSource(HeadraceError, ValueError):
    """A source cannot be imported. The message names the file or sample and the problem."""


class CorruptDataset(HeadraceError, ValueError):
    """Files of a dataset are damaged, missing, or do not belong together."""


class UnsupportedDataset(HeadraceError, ValueError):
    """This version cannot read the dataset."""


class BuildError(HeadraceError):
    """A dataset cannot be built. The message names the sample or file, the problem and how to continue."""


class LoaderError(HeadraceError):
    """A loader cannot continue. The message says why and what to do."""


class EngineClosed(LoaderError):
    """The threads of a loader were stopped while something waited for them."""


class PlanMismatch(LoaderError, ValueError):
    """A dataset does not have the fields, formats or renditions of the loader's plan; it was built with another."""


class StoreError(HeadraceError, OSError):
    """An object store cannot be reached, refuses access, or returns something else than the dataset contains."""


class ExchangeError(HeadraceError, OSError):
    """The folder through which host and offload worker exchange batches cannot be used."""


class BadPreparedBatch(HeadraceError, ValueError):
    """A prepared batch must not be used. The host makes the batch itself."""

    kind: str = "damaged"
    """`damaged`, `foreign`, `unreadable` or `declined`."""


class ProfileError(HeadraceError, ValueError):
    """A pipeline cannot be profiled, or an option is not valid. The message says what to change."""


class TransformError(HeadraceError, ValueError):
    """A transform cannot be applied, such as a crop larger than its image."""


class InvalidReport(HeadraceError, ValueError):
    """A file is not a report of a profile, is damaged or has another version."""


class InvalidState(HeadraceError, ValueError):
    """A loader's state is damaged, belongs to another run, or is loaded while an iteration is in progress."""


class UnknownTarget(HeadraceError, ValueError):
    """This build or this machine does not have the SIMD target."""


class InfeasiblePlan(HeadraceError, ValueError):
    """No mix of formats fits the disk budget. The message says how much is needed."""


class MissingExtra(HeadraceError, ImportError):
    """An optional package is needed. The message names the extra that installs it."""
