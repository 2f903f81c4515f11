"""How fresh weights are drawn: by a seed and the parameters' names, alike on every machine."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from lightbert.nn.distributions import Constant, Distribution, Initial, TruncatedNormal
from lightbert.ops.randomness import named

# Few enough for a core's cache.
_CHUNK = 1 << 14


@torch.no_grad()
def initialize(
    model: nn.Module, seed: int, *, prefix: str = "", keep: Callable[[nn.Parameter], bool] | None = None
) -> None:
    """Draw all weights of a model, in place.

    | what | how | where it says so |
    | --- | --- | --- |
    | linear and grouped weights, tables | normal 0.02, cut at two standard deviations | all three papers' code |
    | every bias | 0 | |
    | LayerNorm, NoNorm | scale 1, shift 0 | |
    | depthwise of span-based convolution | the same, standard deviation 1/K | ConvBERT's code |
    | depthwise of composite attention | uniform in ±1/√K, bias too | Chang et al.'s code |
    | fixed weights of composite attention | 0 | Chang et al.'s code |
    | dynamic weights of composite attention | uniform in ±1/√(2R+1) | Chang et al.'s code |
    | embedding projection, last layer of the RTD head | Glorot-uniform | ELECTRA's code |

    The first three rows are the defaults; a part that differs has a method ``initial_weights() -> Initial``. What an
    owner says of its parts' parameters goes before what they say themselves.

    A weight depends on the seed, on the parameter's name, which starts with ``prefix``, and on its position in the
    parameter, and on nothing else. ``keep`` tells which parameters stay as they are.
    """
    declared = _declared_weights(model)
    for name, parameter in model.named_parameters():
        if keep is None or not keep(parameter):
            _fill(parameter, declared.get(name) or _default(model, name), named(seed, prefix + name))


def seed_from_torch() -> int:
    """Draw a seed from PyTorch's generator: after the same ``torch.manual_seed`` the same one on every machine."""
    # A power of two above 2³² takes 64 random bits as they are, in every version of PyTorch.
    return int(torch.randint(2**62, (), device="cpu"))


def _declared_weights(model: nn.Module) -> Initial:
    found: Initial = {}
    # Owners come before the parts they own.
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
