"""Distributions of initial weights: reproducible to the bit on every machine and every version of PyTorch and numpy.

A weight is a pure function of a seed and of its position in the flattened parameter. Only additions, multiplications
and divisions of float64 turn random bits into numbers, because IEEE 754 defines their rounding exactly; logarithms and
error functions differ between libraries in their last bits.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lightbert.ops.randomness import Stream, bits

# The quantile function of a normal distribution truncated at two standard deviations, as a function of u in [-1, 1], is
# u P(w) / Q(w) with w = 1 - u². Fitted for the smallest relative error, 1.5e-9, which is 1/40 of the rounding error of
# float32. No coefficient is negative, so nothing cancels.
_NUMERATOR = (
    0.12846935832905060,
    2.0344811669715304,
    9.7321571342036988,
    15.506059605682358,
    6.6668185472103569,
    0.35075430134731759,
)
_DENOMINATOR = (
    0.064234679260177713,
    1.1270727926100011,
    6.2482243056069045,
    12.473689854319717,
    7.8580606011615399,
    1.0,
)


class Distribution(Protocol):
    """The distribution of one parameter."""

    def draw(self, seed: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights at these positions of a flattened parameter."""


Initial = dict[str, Distribution]
"""The distributions of a module's parameters, by parameter name."""


@dataclass(frozen=True)
class Constant:
    """A constant value."""

    value: float

    def draw(self, seed: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the value for each position."""
        return np.full(indices.shape, self.value)


@dataclass(frozen=True)
class Uniform:
    """The uniform distribution from -bound to bound."""

    bound: float

    def draw(self, seed: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return one number for each position."""
        return _symmetric(seed, indices) * self.bound


@dataclass(frozen=True)
class TruncatedNormal:
    """A normal distribution with mean 0, truncated at two standard deviations; `std` is that before truncation."""

    std: float = 0.02

    def draw(self, seed: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return one number for each position."""
        return truncated_normal_quantile(_symmetric(seed, indices)) * self.std


def glorot(weight: Tensor) -> Uniform:
    """Return the Glorot-uniform distribution of a dense layer's weight [outputs, inputs]: TensorFlow's default."""
    return Uniform(math.sqrt(6 / sum(weight.shape)))


def truncated_normal_quantile(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map u, uniform in [-1, 1], to the standard normal distribution truncated at -2 and 2."""
    w = (1 - u) * (1 + u)
    return u * _polynomial(_NUMERATOR, w) / _polynomial(_DENOMINATOR, w)


def _symmetric(seed: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one of 2³² evenly spaced numbers strictly between -1 and 1 for each position."""
    return (bits(seed, Stream.WEIGHT, 0, 0, indices).astype(np.float64) + 0.5) * 2.0**-31 - 1


def _polynomial(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate a polynomial by Horner's rule, constant coefficient first."""
    *rest, highest = coefficients
    total = np.full_like(x, highest)
    for coefficient in reversed(rest):
        total *= x
        total += coefficient
    return total
