"""torch.compile for an objective: block by block, which compiles each kind of block once, or as a whole."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import nn

from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective
from lightbert.ops import backend
from lightbert.train.compiled_code import keep_compiled_code

How = Literal["auto", "none", "blocks", "whole"]


def compile_objective(
    objective: Objective, how: How, device: torch.device, *extra: nn.Module, few_shapes: bool = True
) -> None:
    """Compile in place. "blocks" reuses one compiled block for all blocks of a model; "whole" fuses slightly more.

    "auto" is "blocks" on a GPU if batches have few shapes, for each of which code is compiled, and if Triton is
    installed; otherwise it is "none".
    extra: modules that the objective calls but doesn't own, such as a teacher; "whole" covers them anyway.
    few_shapes: if False, code is compiled for all widths at once, which is slower.
    """
    if how == "auto":
        # On a GPU, PyTorch compiles to Triton's language.
        how = "blocks" if device.type == "cuda" and few_shapes and backend.HAS_TRITON else "none"
    if how != "none":
        keep_compiled_code()
    # None compiles for the first shape, and at the second one for all.
    dynamic = False if few_shapes else None
    match how:
        case "none":
            return
        case "whole":
            objective.compile(dynamic=dynamic, options=_options())
        case "blocks":
            for child in (*objective.children(), *extra):
                compile_parts(child, dynamic=dynamic)


def compile_parts(module: nn.Module, *, dynamic: bool | None = False) -> None:
    """Compile a model's embeddings, blocks and heads, each in place; another module as a whole."""
    options = _options()
    for part in _parts(module):
        part.compile(dynamic=dynamic, options=options)


def run_eagerly() -> AbstractContextManager[Any]:
    """Return a context in which compiled modules run eagerly.

    For evaluations: recompiling for a few batches without gradients would take longer than running them.
    """
    # Without the compiler's module nothing is compiled; importing it takes seconds.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _options() -> dict[str, Any]:
    """Settings of the compiler."""
    # Importing the compiler takes seconds.
    from lightbert.train.graph_pass import GraphPass

    return {
        # By default it times alternatives whose sums have another order, and a run's bits depend on the winner.
        "deterministic": True,
        "post_grad_custom_post_pass": GraphPass(),
    }


def _parts(module: nn.Module) -> list[nn.Module]:
    """List what to compile: a model's embeddings, blocks and heads, the items of a list, or the module itself."""
    if isinstance(module, Encoder):
        return [module.embeddings, *module.blocks, *module.heads.values()]
    return [*module] if isinstance(module, nn.ModuleList) else [module]
