"""The order of examples: a pseudorandom permutation that is computed instead of stored."""

import numpy as np
from numpy.typing import NDArray

from lightbert.ops.randomness import Stream, bits

_ROUNDS = 6


def shuffle_at(places: NDArray[np.int64], size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the entries at `places` of a shuffled `range(size)`, without computing the whole shuffle.

    A Feistel network permutes the next power of four; results outside of `range(size)` are permuted again until they
    are inside (cycle walking), which gives a permutation of `range(size)`. Any entry can be computed directly, so a
    restart is free and memory does not grow with the corpus.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    outside = _permuted(places, half, seed, epoch)
    result = outside.copy()
    walking = np.flatnonzero(outside >= size)
    while len(walking):
        result[walking] = _permuted(result[walking], half, seed, epoch)
        walking = walking[result[walking] >= size]
    return result


def _permuted(places: NDArray[np.int64], half: int, seed: int, epoch: int) -> NDArray[np.int64]:
    low = (1 << half) - 1
    left, right = places >> half, places & low
    for turn in range(_ROUNDS):
        left, right = right, left ^ (bits(seed, Stream.ORDER, epoch, turn, right) & low)
    return left << half | right
