"""Which examples make the batch of a step: a shuffle that is computed, not stored."""

import numpy as np
from numpy.typing import NDArray

from lightbert.ops.randomness import Stream, bits

_ROUNDS = 6


def shuffle_at(places: NDArray[np.int64], size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return what a shuffle of `range(size)` has at `places`, without making the shuffle.

    A Feistel network permutes the next power of four; places that land beyond `size` walk on until they don't, which
    leaves a permutation of `range(size)`. Any place is reached directly, so that a restart costs nothing and a corpus
    of any size needs no memory.
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
