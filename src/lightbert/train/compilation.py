"""torch.compile for an objective: block by block, which compiles each kind of block once, or as a whole."""

from typing import Literal

import torch
from torch import nn

from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective

How = Literal["auto", "none", "blocks", "whole"]


def compile_objective(objective: Objective, how: How, device: torch.device, *extra: nn.Module) -> None:
    """Compile in place. "blocks" reuses one compiled block for all blocks of a model; "whole" fuses slightly more.

    "auto" is "blocks" on a GPU and "none" on a CPU.
    extra: modules that the objective calls but doesn't own, such as a teacher; "whole" covers them anyway.
    """
    if how == "auto":
        how = "blocks" if device.type == "cuda" else "none"
    match how:
        case "none":
            return
        case "whole":
            objective.compile(dynamic=False)
        case "blocks":
            for child in (*objective.children(), *extra):
                compile_parts(child)


def compile_parts(module: nn.Module) -> None:
    """Compile a model's embeddings, blocks and heads, each in place; another module as a whole."""
    for part in _parts(module):
        part.compile(dynamic=False)


def _parts(module: nn.Module) -> list[nn.Module]:
    """List what to compile: a model's embeddings, blocks and heads, the items of a list, or the module itself."""
    if isinstance(module, Encoder):
        return [module.embeddings, *module.blocks, *module.heads.values()]
    return [*module] if isinstance(module, nn.ModuleList) else [module]
