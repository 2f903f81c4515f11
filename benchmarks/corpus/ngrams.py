"""Hashes of words and n-grams of a text, vectorised: the basis of deduplication and decontamination.

A word is a run of ASCII letters and digits, lowercased; everything else separates words. Hashes have 64 bits.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Offsets = NDArray[np.int64]

_CODES = np.zeros(256, np.uint8)
for _code, _character in enumerate(b"0123456789abcdefghijklmnopqrstuvwxyz", start=1):
    _CODES[_character] = _CODES[bytes([_character]).upper()[0]] = _code


def _powers(base: int, count: int) -> Hashes:
    return np.array([pow(base, exponent, 1 << 64) for exponent in range(count)], np.uint64)


_LETTER_POWERS = _powers(0x9E3779B97F4A7C15, 64)
_WORD_POWERS = _powers(0xD6E8FEB86659FD93, 4096)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)
_NEXT = np.uint64(0xC2B2AE3D27D4EB4F)


def mix(hashes: Hashes) -> Hashes:
    """Spread the information of every bit, so that ranges and masks of a hash are uniform."""
    mixed = (hashes ^ (hashes >> _SHIFT)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


class Words(NamedTuple):
    """The words of a text: their hashes and the offset in bytes at which each begins."""

    hashes: Hashes
    starts: Offsets

    @classmethod
    def of(cls, text: bytes | memoryview) -> "Words":
        """Find and hash the words of UTF-8 text."""
        codes = _CODES[np.frombuffer(text, np.uint8)]
        inside = codes != 0
        starts = np.flatnonzero(inside & ~np.concatenate(([False], inside[:-1])))
        if not len(starts):
            return cls(np.zeros(0, np.uint64), starts)
        letters = codes[inside]
        ends = np.flatnonzero(inside & ~np.concatenate((inside[1:], [False]))) + 1
        firsts = np.concatenate(([0], np.cumsum(ends - starts)[:-1]))
        places = np.arange(len(letters)) - np.repeat(firsts, ends - starts)
        values = letters * _LETTER_POWERS[np.minimum(places, len(_LETTER_POWERS) - 1)]
        return cls(mix(np.add.reduceat(values, firsts)), starts)

    def group_hashes(self, firsts: Offsets) -> Hashes:
        """Hash the groups of words (paragraphs) that begin at the given words; no group may be empty."""
        if not len(firsts):
            return self.hashes[:0]
        places = np.arange(len(self.hashes)) - np.repeat(firsts, np.diff(np.append(firsts, len(self.hashes))))
        values = self.hashes * _WORD_POWERS[np.minimum(places, len(_WORD_POWERS) - 1)]
        return mix(np.add.reduceat(values, firsts))


class NGrams:
    """The hashes of all n-grams of a text, for n = 1, 2, 3 and so on."""

    def __init__(self, words: Hashes) -> None:
        self._words, self._sums, self.n = words, words.copy(), 1

    def grow(self, n: int) -> Hashes:
        """Go on to a larger n and return its n-grams: element i starts at word i."""
        while self.n < n:
            self._sums = self._sums[:-1] * _NEXT + self._words[self.n :] if len(self._sums) else self._sums
            self.n += 1
        return mix(self._sums)
