"""Weight initialization: reproducible on every machine from a seed and the parameter names."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from lightbert.nn.distributions import Constant, Distribution, Initial, TruncatedNormal
from lightbert.ops.randomness import named

# Small enough for a core's cache.
_CHUNK = 1 << 14


@torch.no_grad()
def initialize(
    model: nn.Module, seed: int, *, prefix: str = "", keep: Callable[[nn.Parameter], bool] | None = None
) -> None:
    """Initialize all weights of a model, in place.

    | parameter | distribution | source |
    | --- | --- | --- |
    | linear and grouped weights, tables | normal 0.02, truncated at two standard deviations | all three papers' code |
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
    """
    declared = _declared_weights(model)
    for name, parameter in model.named_parameters():
        if keep is None or not keep(parameter):
            _fill(parameter, declared.get(name) or _default(model, name), named(seed, prefix + name))


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
