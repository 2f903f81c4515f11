"""How fresh weights are drawn."""

import torch
from torch import nn

from lightbert.nn.projections import GroupedLinear


@torch.no_grad()
def initialize(model: nn.Module, std: float = 0.02) -> None:
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

    The first three rows are drawn here; a part that differs says so in its own ``reset_parameters``, which runs after,
    owners after the parts they own.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | GroupedLinear):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        if isinstance(module, nn.Linear | GroupedLinear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for module in reversed(list(model.modules())):
        own = getattr(module, "reset_parameters", None)
        if callable(own) and type(module).__module__.startswith("lightbert."):
            own()
