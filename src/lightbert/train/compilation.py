"""torch.compile for an objective: block by block, which compiles once per kind of block, or as a whole."""

from typing import Literal

from lightbert.objectives.objective import Objective


def compile_objective(objective: Objective, how: Literal["none", "blocks", "whole"]) -> None:
    """Compile in place. "blocks" starts within seconds and reuses one compiled block for all; "whole" fuses more."""
    match how:
        case "none":
            return
        case "whole":
            objective.compile(dynamic=False)
        case "blocks":
            for model in objective.models().values():
                for part in (*model.blocks, *model.heads.values()):
                    part.compile(dynamic=False)
