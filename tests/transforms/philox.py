# SPDX-License-Identifier: Apache-2.0
"""The draws of spec/recipe.md §4 in plain Python, as their oracle."""

from __future__ import annotations

from dataclasses import dataclass

WORD = 0xFFFFFFFF


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & WORD, p0 >> 32 ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return c0, c1, c2, c3


@dataclass(frozen=True)
class Key:
    """What a draw depends on."""

    seed: int = 0
    epoch: int = 0
    sample: int = 0
    view: int = 0

    def words(self, operation: int, block: int = 0) -> tuple[int, ...]:
        counter = (self.sample & WORD, self.sample >> 32 | self.view << 16, self.epoch, operation << 16 | block)
        return philox(counter, (self.seed & WORD, self.seed >> 32))

    def arguments(self) -> dict[str, int]:
        return {"seed": self.seed, "epoch": self.epoch, "sample": self.sample, "view": self.view}


def unit(word: int) -> float:
    return word / 2**32


def below(word: int, n: int) -> int:
    return word * n >> 32


def uniform(word: int, low: float, high: float) -> float:
    return low + (high - low) * unit(word)
