"""torch.compile for an objective, block by block or as a whole, and where compiled code is kept between runs."""

import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal

import torch
from torch import nn

from lightbert.files import cache_folder
from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective
from lightbert.ops import backend

_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def keep_compiled_code() -> None:
    """Let PyTorch and Triton keep their code in the user's cache folder; variables that are set already win.

    PyTorch's default is a temporary folder. Without a writable cache folder it stays the default. Must be called before
    anything is compiled.
    """
    folder = cache_folder() / "compiled"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK | os.X_OK):
        for variable, name in _FOLDERS.items():
            os.environ.setdefault(variable, str(folder / name))
    # After the variables, one of which PyTorch's compiler sets itself when it is imported.
    fix_assembler()


def fix_assembler() -> None:
    """Choose the assembler of Triton's kernels for good: PyTorch's own, if it has one.

    PyTorch sets it when it compiles a first kernel, and a key of Triton's cache contains the version that it had when
    the first key was computed. Whether that was before or after depends on what is in the caches, so that a second run
    would not find the kernels of the first.
    """
    if "TRITON_PTXAS_PATH" not in os.environ:
        with suppress(ImportError):
            from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path

            _set_triton_ptxas_path()


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
