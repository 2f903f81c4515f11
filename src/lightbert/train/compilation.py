"""torch.compile for an objective: part by part, which compiles once per kind of block, or as a whole."""

from typing import Literal

from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective


def compile_objective(objective: Objective, how: Literal["none", "blocks", "whole"]) -> None:
    """Compile in place. "blocks" starts within seconds and reuses one compiled block for all; "whole" fuses more."""
    match how:
        case "none":
            return
        case "whole":
            objective.compile(dynamic=False)
        case "blocks":
            for child in objective.children():
                inner = isinstance(child, Encoder)
                for part in (child.embeddings, *child.blocks, *child.heads.values()) if inner else (child,):
                    part.compile(dynamic=False)
