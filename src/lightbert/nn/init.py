"""Initial weights: a pure function of a seed and a parameter's name, with the same bits on every machine.

Only additions, multiplications, divisions and square roots of float64 turn random bits into numbers, because IEEE 754
defines their rounding exactly; logarithms and error functions of libraries differ in their last bits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.ops.randomness import Stream, bits, named

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


# Beyond two standard deviations the quantile is q - N(q) / D(q) with q = √(-2 ln p) of the tail's probability p. Fitted
# for the smallest relative error up to p = 2⁻³³, 2.2e-9.
_TAIL_NUMERATOR = (2.803411971809889, 3.428259964887878, 0.42163101768655964, 0.0015312581484290405)
_TAIL_DENOMINATOR = (1.0, 2.838123622444003, 1.316769558792141, 0.087359160763735)
_WITHIN_TWO = 0.9544997361036416
"""The probability of at most two standard deviations."""
_LN_2 = 0.6931471805599453
_ATANH = tuple(1 / (2 * power + 1) for power in range(12))


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


@dataclass(frozen=True)
class Normal:
    """A normal distribution with mean 0, not truncated."""

    std: float = 0.02

    def draw(self, seed: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return one number for each position."""
        return normal_quantile(_symmetric(seed, indices)) * self.std


def glorot(weight: Tensor) -> Uniform:
    """Return the Glorot-uniform distribution of a dense layer's weight [outputs, inputs]: TensorFlow's default."""
    return Uniform(math.sqrt(6 / sum(weight.shape)))


def truncated_normal_quantile(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map u, uniform in [-1, 1], to the standard normal distribution truncated at -2 and 2."""
    w = (1 - u) * (1 + u)
    return u * _polynomial(_NUMERATOR, w) / _polynomial(_DENOMINATOR, w)


def normal_quantile(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map u, uniform in (-1, 1), to the standard normal distribution."""
    within = truncated_normal_quantile(np.clip(u / _WITHIN_TWO, -1, 1))
    tail: NDArray[np.float64] = np.minimum(1 - np.abs(u), 1 - _WITHIN_TWO) / 2
    q = np.sqrt(-2 * _logarithm(tail))
    beyond = q - _polynomial(_TAIL_NUMERATOR, q) / _polynomial(_TAIL_DENOMINATOR, q)
    return np.where(np.abs(u) <= _WITHIN_TWO, within, np.copysign(beyond, u))


def _logarithm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The natural logarithm, by the series of atanh: the same bits everywhere."""
    mantissa, exponent = np.frexp(x)
    s = (mantissa - 1) / (mantissa + 1)
    logarithm: NDArray[np.float64] = 2 * s * _polynomial(_ATANH, s * s) + exponent * _LN_2
    return logarithm


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


# Small enough for a core's cache.
_CHUNK = 1 << 14


@torch.no_grad()
def initialize(
    model: nn.Module,
    seed: int,
    *,
    prefix: str = "",
    keep: Callable[[nn.Parameter], bool] | None = None,
    matrices: Distribution | None = None,
) -> None:
    """Initialize all weights of a model, in place.

    | parameter | distribution | source |
    | --- | --- | --- |
    | linear and grouped weights, tables | normal 0.02, truncated at two deviations | ConvBERT's and MobileBERT's code |
    | every bias | 0 | |
    | LayerNorm, NoNorm | scale 1, shift 0 | |
    | depthwise of span-based convolution | truncated normal 1/K | ConvBERT's code |
    | depthwise of composite attention | uniform in ±1/√K, bias too | Chang et al.'s code |
    | fixed weights of composite attention | 0 | Chang et al.'s code |
    | dynamic weights of composite attention | uniform in ±1/√(2R+1) | Chang et al.'s code |
    | embedding projection, last layer of the RTD head | Glorot-uniform | ELECTRA's code |

    The first three rows are the defaults; a module overrides them with a method ``initial_weights() -> Initial``. The
    distributions of an outer module take precedence over those of the modules inside it.

    A weight depends only on the seed, on the parameter's name (with ``prefix``) and on its position in the parameter.
    Parameters for which ``keep`` returns True are left unchanged.

    matrices: the distribution of the weights of linear layers and tables, in place of truncated normal and Glorot.
    Chang et al.'s code draws them from a normal distribution that is not truncated, as the composite presets do.
    Deviation: for other composite configs, and for heads, the table above applies.
    """
    declared = _declared_weights(model)
    for name, parameter in model.named_parameters():
        if keep is None or not keep(parameter):
            distribution = declared.get(name) or _default(model, name)
            if matrices is not None and _is_matrix(model, name):
                distribution = matrices
            _fill(parameter, distribution, named(seed, prefix + name))


def seed_from_torch() -> int:
    """Draw a seed from PyTorch's generator; ``torch.manual_seed`` makes it reproducible on every machine."""
    # For a power of two above 2³², every version of PyTorch returns the low bits of 64 random bits unchanged.
    return int(torch.randint(2**62, (), device="cpu"))


def _declared_weights(model: nn.Module) -> Initial:
    found: Initial = {}
    # Outer modules come before the modules inside them.
    for path, module in model.named_modules():
        own = getattr(module, "initial_weights", None)
        for name, distribution in (own() if own is not None else {}).items():
            found.setdefault(f"{path}.{name}" if path else name, distribution)
    return found


def _is_matrix(model: nn.Module, name: str) -> bool:
    owner, _, own_name = name.rpartition(".")
    return own_name == "weight" and isinstance(model.get_submodule(owner), nn.Linear | nn.Embedding)


def _default(model: nn.Module, name: str) -> Distribution:
    owner, _, own_name = name.rpartition(".")
    if own_name == "bias":
        return Constant(0.0)
    return Constant(1.0) if isinstance(model.get_submodule(owner), nn.LayerNorm) else TruncatedNormal()


def _fill(parameter: Tensor, distribution: Distribution, seed: int) -> None:
    flat = parameter.view(-1)
    for start in range(0, flat.numel(), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        drawn = distribution.draw(seed, np.arange(start, start + chunk.numel()))
        chunk.copy_(torch.from_numpy(drawn.astype(np.float32)))
