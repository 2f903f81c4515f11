"""torch.compile for an objective: part by part, which compiles once per kind of block, or as a whole."""

from typing import Literal

from torch import nn

from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective


def compile_objective(objective: Objective, how: Literal["none", "blocks", "whole"], *beside: nn.Module) -> None:
    """Compile in place. "blocks" reuses one compiled block for all blocks of a model; "whole" fuses a little more.

    beside: what the objective runs though it is none of its modules, such as a teacher; "whole" takes it in anyway.
    """
    match how:
        case "none":
            return
        case "whole":
            objective.compile(dynamic=False)
        case "blocks":
            for child in (*objective.children(), *beside):
                for part in _parts(child):
                    part.compile(dynamic=False)


def _parts(module: nn.Module) -> list[nn.Module]:
    """A model's embeddings, blocks and heads, each module of a list; anything else is one part."""
    if isinstance(module, Encoder):
        return [module.embeddings, *module.blocks, *module.heads.values()]
    return [*module] if isinstance(module, nn.ModuleList) else [module]
