"""A module with every kind of parameter that optimizers treat differently, and random gradients for it."""

import torch
from torch import Tensor, nn

from lightbert.train.optim import Optimizers
from lightbert.train.settings import OptimizerSettings


class Parts(nn.Module):
    """A table, a block of one matrix and its norm, and a head, named as in a model."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict({"word": nn.Embedding(6, 4), "norm": nn.LayerNorm(4)})
        self.blocks = nn.ModuleList([nn.ModuleDict({"output": nn.Linear(4, 3), "norm": nn.LayerNorm(3)})])
        self.heads = nn.ModuleDict({"rtd": nn.Linear(3, 2)})


def optimizers_of(model: nn.Module, rate: float = 0.1, **settings: object) -> Optimizers:
    """Build the optimizers of a model with a learning rate, by default without clipping.

    ``kind="flat"`` is AdamW on flat buffers, which is otherwise used on a GPU only.
    """
    flat = settings.get("kind") == "flat"
    settings |= {"kind": "adamw"} if flat else {}
    made = Optimizers(model, OptimizerSettings(**{"clip": 1e9} | settings), flat=flat)
    made.set_rate(rate)
    return made


def give_gradients(model: nn.Module, seed: int, size: float = 1.0) -> dict[str, Tensor]:
    """Set a random gradient for each parameter and return copies."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = size * torch.randn(parameter.shape, generator=generator)
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def values(model: nn.Module) -> dict[str, Tensor]:
    """Copy the parameters."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
