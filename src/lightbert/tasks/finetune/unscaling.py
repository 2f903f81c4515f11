"""A regression that was learned as a share of its range says its numbers themselves, to any library that runs it."""

from dataclasses import replace
from typing import Any

import torch

from lightbert.nn.encoder import Encoder
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.regress.kind import Regress


@torch.no_grad()
def unscaled(kind: Kind[Any], model: Encoder) -> Kind[Any]:
    """Move the range of a scaled regression into the weights of the model's last layer; other kinds stay."""
    if not (isinstance(kind, Regress) and kind.scaled):
        return kind
    output, unit = model.heads[kind.head].get_submodule("output"), kind.high - kind.low
    output.get_parameter("weight").mul_(unit)
    output.get_parameter("bias").mul_(unit).add_(kind.low)
    return replace(kind, scaled=False)
