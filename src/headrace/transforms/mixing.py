# SPDX-License-Identifier: Apache-2.0
"""MixUp and CutMix: each image of a batch is mixed with the one before it, the first with the last, and so are labels.

The draws of a batch depend on the seed, the epoch and the first sample of the batch, so a loader, a stock DataLoader
and a resumed run mix alike, as long as they make the same batches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import TransformError
from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform

FIRST_OPERATION = 1 << 15
"""Number of the first batch transform in its draws. Those of samples have lower numbers."""
MAX_CLASSES = 1 << 24


class MixOptions(NamedTuple):
    """What the core needs to draw for a batch, and what labels need."""

    mixup_alpha: float
    cutmix_alpha: float
    probability: float
    switch_probability: float
    label_smoothing: float
    num_classes: int | None
    labels: str


@dataclass(frozen=True)
class BatchTransform(Transform):
    """A declarative transform of whole batches: it comes after those of samples."""

    stage: ClassVar[int] = 3

    def operations(self) -> tuple[Operation, ...]:
        return ()

    def options(self) -> MixOptions:
        raise NotImplementedError

    def __call__(  # type: ignore[override]
        self,
        images: Any,
        labels: Any,
        *,
        seed: int = 0,
        epoch: int = 0,
        sample: int = 0,
        layout: str = "CHW",
    ) -> tuple[Any, Any]:
        """Return a mixed copy of a batch: images `[B, C, H, W]`, and labels `[B]` of integers or `[B, num_classes]`.

        Arrays and PyTorch tensors in host memory are accepted. The draws are those of a loader with this seed, in this
        epoch, for the batch whose first sample is row `sample` of the dataset.
        """
        arrays = [np.array(value.numpy() if hasattr(value, "numpy") else value) for value in (images, labels)]
        mixer = Mixer((self,), {"image": "image", self.options().labels: "int64"}, None, layout=layout)
        mixed = mixer.mix(*arrays, seed=seed, epoch=epoch, sample=sample)
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(images, torch.Tensor):
            return mixed
        return torch.from_numpy(mixed[0]), torch.from_numpy(mixed[1])


@dataclass(frozen=True)
class MixUp(BatchTransform):
    """Mix each image with the one before it in the batch, in a proportion from Beta(alpha, alpha), one per batch.

    The twin of torchvision's `v2.MixUp`. The labels become float32 `[B, num_classes]`. It needs float images of one
    shape: use `Normalize`, or a float dtype.

    Args:
        alpha: Parameter of the beta distribution.
        num_classes: Number of classes; None uses the classes that the dataset names.
        labels: Field of the labels.

    """

    alpha: float = 1.0
    num_classes: int | None = None
    labels: str = "label"

    op: ClassVar[str] = "mixup"

    def __post_init__(self) -> None:
        self._set(alpha=_alpha("MixUp: alpha", self.alpha), **_labels("MixUp", self))

    def options(self) -> MixOptions:
        return MixOptions(self.alpha, 0, 1, 0, 0, self.num_classes, self.labels)


@dataclass(frozen=True)
class CutMix(BatchTransform):
    """Replace a box in each image by that of the image before it in the batch; one box per batch.

    The twin of torchvision's `v2.CutMix`. The box has a share of the area from Beta(alpha, alpha); labels are mixed by
    what is visible of it. Arguments are those of `MixUp`. It works with every dtype.
    """

    alpha: float = 1.0
    num_classes: int | None = None
    labels: str = "label"

    op: ClassVar[str] = "cutmix"

    def __post_init__(self) -> None:
        self._set(alpha=_alpha("CutMix: alpha", self.alpha), **_labels("CutMix", self))

    def options(self) -> MixOptions:
        return MixOptions(0, self.alpha, 1, 1, 0, self.num_classes, self.labels)


@dataclass(frozen=True)
class MixUpCutMix(BatchTransform):
    """Mix or cut each batch, with smoothed labels.

    The twin of timm's `Mixup` in its mode "batch". timm mixes with the batch in reverse; this mixes each image with the
    one before it, as torchvision does.

    Args:
        mixup_alpha: As in `MixUp`; 0 disables it.
        cutmix_alpha: As in `CutMix`; 0 disables it.
        prob: Probability that a batch is changed at all.
        switch_prob: Probability of CutMix instead of MixUp, if both are enabled.
        label_smoothing: Share of each label that is spread over all classes, also in batches that are not changed.
        num_classes: As in `MixUp`.
        labels: As in `MixUp`.

    """

    mixup_alpha: float = 1.0
    cutmix_alpha: float = 0.0
    prob: float = 1.0
    switch_prob: float = 0.5
    label_smoothing: float = 0.1
    num_classes: int | None = None
    labels: str = "label"

    op: ClassVar[str] = "mixup_cutmix"

    def __post_init__(self) -> None:
        alphas = {name: _alpha(f"MixUpCutMix: {name}", getattr(self, name), 0) for name in _ALPHAS}
        if not any(alphas.values()):
            raise ValueError("MixUpCutMix: mixup_alpha or cutmix_alpha must be > 0")
        shares = ("prob", "switch_prob", "label_smoothing")
        checked = {name: arguments.probability(f"MixUpCutMix: {name}", getattr(self, name)) for name in shares}
        self._set(**alphas, **checked, **_labels("MixUpCutMix", self))

    def options(self) -> MixOptions:
        draws = (self.mixup_alpha, self.cutmix_alpha, self.prob, self.switch_prob)
        return MixOptions(*draws, self.label_smoothing, self.num_classes, self.labels)


_ALPHAS = ("mixup_alpha", "cutmix_alpha")


def _alpha(name: str, value: Any, low: float = 1e-3) -> float:
    alpha = arguments.number(name, value, low, 1e3)
    if 0 < alpha < 1e-3:
        raise ValueError(f"{name} must be 0 or at least 0.001; got {alpha}")
    return alpha


def _labels(owner: str, given: Any) -> dict[str, Any]:
    if not isinstance(given.labels, str):
        raise TypeError(f"{owner}: labels must be the name of a field; got {given.labels!r}")
    count = given.num_classes
    if count is not None:
        count = arguments.integer(f"{owner}: num_classes", count, 1, MAX_CLASSES)
    return {"num_classes": count, "labels": given.labels}


class Mixer:
    """Carries out the batch transforms of a list on the batches of a dataset."""

    def __init__(
        self,
        transforms: Sequence[BatchTransform],
        fields: Mapping[str, str],
        classes: Sequence[str] | None,
        *,
        layout: str,
    ) -> None:
        """Check that these fields can be mixed; `fields` has the type of each loaded one."""
        self._channels_first = layout == "CHW"
        self._name = type(transforms[0]).__name__
        images = [name for name, kind in fields.items() if kind == "image"]
        others = [name for name, kind in fields.items() if kind in ("mask", "boxes", "keypoints", "polygons")]
        self._options = [each.options() for each in transforms]
        named = {each.labels for each in self._options}
        self.labels = self._options[0].labels
        if len(images) != 1 or others:
            raise ValueError(
                f"{self._name} mixes one field of images and no masks or boxes; the fields are {', '.join(fields)}: "
                f"choose others with fields=[...]"
            )
        if len(named) > 1 or fields.get(self.labels) != "int64":
            raise ValueError(
                f"{self._name} needs one int64 field of labels; {self.labels!r} is {fields.get(self.labels)!r}: "
                f"load it, or name another one with labels=..."
            )
        self.image = images[0]
        self._classes = [each.num_classes or (len(classes) if classes else None) for each in self._options]
        if None in self._classes:
            raise ValueError(f"{self._name} needs num_classes: the dataset does not name its classes")

    def mix(
        self, images: Any, labels: npt.NDArray[Any], *, seed: int, epoch: int, sample: int, threads: int = 1
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the mixed images, in their own memory if it can be written to, and the labels `[B, num_classes]`.

        A batch of one image is not mixed. It works without the GIL, in up to this many threads.
        """
        if isinstance(images, list) or images.ndim != 4:
            raise TransformError(f"{self._name} needs images of one shape: use Resize or a crop before it")
        if not (images.flags.writeable and images.flags.c_contiguous):
            images = np.array(images, order="C")
        sides = images.shape[2:] if self._channels_first else images.shape[1:3]
        for k, (options, n_classes) in enumerate(zip(self._options, self._classes, strict=True)):
            labels = _soft(labels, n_classes or 0, options.label_smoothing, self._name)
            if len(images) < 2:
                continue
            key = {"seed": seed, "epoch": epoch, "sample": sample, "operation": FIRST_OPERATION + k}
            share = self._mix_images(images, options, sides, key, threads)
            if share < 1:
                labels = np.roll(labels, 1, axis=0) * np.float32(1 - share) + labels * np.float32(share)
        return images, labels

    def _mix_images(
        self, images: npt.NDArray[Any], options: MixOptions, sides: Sequence[int], key: dict[str, int], threads: int
    ) -> float:
        """Mix in place; return the share of each image that stays its own."""
        from headrace import _core  # noqa: PLC0415  # transforms can be described without loading the extension

        kind, share, box = _core.draw_mix(
            mixup_alpha=options.mixup_alpha,
            cutmix_alpha=options.cutmix_alpha,
            probability=options.probability,
            switch_probability=options.switch_probability,
            height=sides[0],
            width=sides[1],
            **key,
        )
        if kind == "mixup":
            _core.mix_images(images, share, threads)
        elif kind == "cutmix":
            _core.cut_images(images, *box, channels_first=self._channels_first)
        return share


def _soft(labels: npt.NDArray[Any], n_classes: int, smoothing: float, name: str) -> npt.NDArray[np.float32]:
    """Return labels as rows of class probabilities."""
    if labels.ndim == 2:
        return labels.astype(np.float32, copy=False)
    if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
        found = labels[(labels < 0) | (labels >= n_classes)][0]
        raise TransformError(f"{name}: labels must be in [0, {n_classes}); got {found}")
    rest = smoothing / n_classes
    soft = np.full((len(labels), n_classes), rest, np.float32)
    soft[np.arange(len(labels)), labels] = 1 - smoothing + rest
    return soft
