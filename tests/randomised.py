"""Modules whose every parameter is random, biases and norms too: at zero or one they would hide a mistake."""

from typing import TypeVar

import torch
from torch import nn

from lightbert.nn.init import initialize

M = TypeVar("M", bound=nn.Module)


@torch.no_grad()
def randomised(module: M, seed: int = 0) -> M:
    """Redraw all parameters, large enough for a wrongly read token to be seen; evaluation mode."""
    torch.manual_seed(seed)
    initialize(module, seed)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(0.5 * torch.randn_like(parameter))
    return module.eval()
