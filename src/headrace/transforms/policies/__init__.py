# SPDX-License-Identifier: Apache-2.0
"""Augmentation policies: lists of operations with random choices and magnitudes, which the core runs like any other."""

from headrace.transforms.policies._augmix import AugMix
from headrace.transforms.policies._learned import AutoAugment, RandAugment, TrivialAugmentWide
from headrace.transforms.policies._timm import TimmAugment

__all__ = ["AugMix", "AutoAugment", "RandAugment", "TimmAugment", "TrivialAugmentWide"]
