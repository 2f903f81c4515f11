"""Random numbers as a pure function of their position: there is no state to save, share or restore.

The integers are the same in Python, numpy and torch, on a CPU, on a GPU, compiled and inside a CUDA graph. Values are
32-bit words held in 64 bits and every multiplier is below 2³¹ in magnitude, so that no product ever overflows: signed
overflow is where compilers may differ.
"""

import hashlib
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Integers = TypeVar("Integers", int, NDArray[np.int64], Tensor)

_WORD = 0xFFFFFFFF
_LANES = (0x243F6A88, 0x13198A2E)


class Stream(IntEnum):
    """The purpose of a random number; purposes don't share numbers. Runs can only be reproduced with these values."""

    ORDER = 0
    LENGTH = 1
    SEGMENT = 2
    SPLIT = 3
    NEXT = 4
    DOCUMENT = 5
    SENTENCE = 6
    TRUNCATION = 7
    POSITION = 8
    STYLE = 9
    REPLACEMENT = 10
    SAMPLE = 11
    DROPOUT = 12
    BUCKET = 13
    WEIGHT = 14


def mix(word: Integers) -> Integers:
    """Scramble a 32-bit word one to one: the `lowbias32` finaliser found by Wellons' hash prospector."""
    word = word ^ (word >> 16)
    word = (word * 0x7FEB352D) & _WORD
    word = word ^ (word >> 15)
    # 0x846CA68B less 2³²: the same product modulo 2³².
    word = (word * -0x7B935975) & _WORD
    return word ^ (word >> 16)


def bits(seed: int, stream: Stream, step: int | Tensor, rows: int | Integers, columns: Integers) -> Integers:
    """Return 32 random bits for each combination of `rows` and `columns`, which broadcast; all arguments are ≥ 0.

    A row has a 64-bit key made of everything but the column, so that two rows are never shifted or permuted copies.
    """
    first, second = (_key(lane, seed, stream, step, rows) for lane in _LANES)
    words: Integers = mix(mix(columns ^ first) ^ second)
    return words


def named(seed: int, name: str) -> int:
    """Return a 64-bit seed for what has a name, such as a parameter of a model: other names, other numbers."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "little")


def chance(probability: float) -> int:
    """Return the number that random bits are below with this probability."""
    return round(probability * 2**32)


def uniform(seed: int, stream: Stream, step: int | Tensor, rows: int | Tensor, columns: Tensor) -> Tensor:
    """Return float32 numbers strictly between 0 and 1, safe for logarithms, equal on every device to the last bit."""
    # 23 bits and a half: one bit more and the largest value would round to 1.
    return ((bits(seed, stream, step, rows, columns) >> 9).float() + 0.5) * 2.0**-23


def _key(lane: int, seed: int, stream: Stream, step: int | Tensor, rows: Any) -> Any:
    key: Any = mix(mix(lane ^ (seed & _WORD)) ^ (seed >> 32 & _WORD))
    for value in (int(stream), step, rows):
        key = mix(key ^ value)
    return key
