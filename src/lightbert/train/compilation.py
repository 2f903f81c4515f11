"""torch.compile for an objective; Triton kernels compiled ahead; where compiled code is kept between runs.

Triton compiles a kernel when it is first called, one after another, which takes most of the time before a run with
empty caches starts to train. While torch.compile works on the first batch, `kernels_ahead` starts processes: each runs
two blocks of a model with some of the kernels, and leaves their code in Triton's cache, where the run finds it. Nothing
depends on it but time: a process that fails leaves its kernels to the run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightbert import ops, processes
from lightbert.files import cache_folder
from lightbert.models import Model
from lightbert.models.folder import description, from_description
from lightbert.nn.encoder import Encoder
from lightbert.objectives.objective import Objective
from lightbert.ops import backend
from lightbert.train.distributed import World
from lightbert.train.step import HalfWeights

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
    if isinstance(module, Encoder):
        parts = [module.embeddings, *module.blocks, *module.heads.values()]
    else:
        parts = [*module] if isinstance(module, nn.ModuleList) else [module]
    options = _options()
    for part in parts:
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


_GROUPS = (("dynamic_conv", "relative_attention"), ("depthwise",), ("residual_norm", "bias_gelu", "relu_feedforward"))
"""The kernels that each process compiles; those of both kinds of heads are called by one operator."""
_CORES = 8
"""With fewer cores, the processes would slow the run down."""
_ROOM = 32 * 2**30
"""Bytes: with less free memory on the GPU, the processes could take what the run needs."""
_MEMORY = 0.1
"""The part of the GPU's memory that a process may use; if it is not enough, the process fails."""


@contextmanager
def kernels_ahead(
    models: Iterable[Model], shapes: Sequence[tuple[int, int]], world: World, *, packed: bool = False
) -> Iterator[None]:
    """Compile the kernels of models in the background while the body runs.

    shapes: batch and length of each phase. packed: whether rows contain several texts.
    """
    folder = os.environ.get("TRITON_CACHE_DIR", "")
    started = []
    if folder and world.is_main and _has_room(world.device):
        started = [
            processes.start(f"{__name__}:compile_kernels", work, {}, subprocess.DEVNULL, subprocess.DEVNULL)
            for work in _work(models, shapes, packed, world.size == 1, folder)
        ]
    try:
        yield
    finally:
        for process in started:
            processes.end(process)


def compile_kernels(
    report: Callable[[int], None],
    described: dict[str, Any],
    kernels: str,
    shapes: Sequence[tuple[int, int]],
    packed: bool,
    half_weights: bool,
) -> str:
    """Run two blocks of a model, forward and backward, in each shape, with a selection of kernels; returns ""."""
    fix_assembler()
    torch.cuda.set_per_process_memory_fraction(_MEMORY)
    model = from_description(described, Path()).to_empty(device="cuda").train()
    for done, shape in enumerate(shapes):
        report(done)
        run_blocks(model, shape, kernels, packed=packed, half_weights=half_weights)
        torch.cuda.synchronize()
        _mark(os.environ["TRITON_CACHE_DIR"], described, kernels, shape, packed, half_weights).touch()
    return ""


def run_blocks(model: Model, shape: tuple[int, int], kernels: str, *, packed: bool, half_weights: bool) -> None:
    """Run two blocks, so that the inputs of one of them are those of a block, as in training.

    half_weights: give the linear layers bf16 copies of their weights, as a run in one process does: a kernel that reads
    a bias is compiled for its dtype.
    """
    device = model.table.device
    ids = torch.ones(shape, dtype=torch.int64, device=device)
    mask = torch.ones(shape, dtype=torch.int32 if packed else torch.bool, device=device)
    with HalfWeights(model).installed() if half_weights else nullcontext():
        with backend.enabling(kernels), torch.autocast(device.type, dtype=torch.bfloat16):
            states = model(ids, mask, torch.zeros_like(ids), depth=2)
        with WithSums():  # type: ignore[no-untyped-call]
            states.backward(torch.zeros_like(states))


class WithSums(TorchDispatchMode):
    """Also runs backward passes as compiled blocks do, where kernels add gradients: they are other kernels."""

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if op.name() == "lightbert::residual_norm_backward":
            op(*args, more_grad=args[0])
        if op.name() == "lightbert::depthwise_backward":
            op(*args, more=args[1], and_more=args[1])
        return op(*args, **kwargs or {})


def _has_room(device: torch.device) -> bool:
    """Whether there are enough cores for compilation, as PyTorch counts them, and enough memory on the GPU."""
    # Several runs side by side divide the cores by this variable.
    cores = int(os.environ.get("TORCHINDUCTOR_COMPILE_THREADS") or os.cpu_count() or 1)
    return device.type == "cuda" and cores >= _CORES and torch.cuda.mem_get_info(device)[0] >= _ROOM


def _work(
    models: Iterable[Model], shapes: Sequence[tuple[int, int]], packed: bool, half_weights: bool, folder: str
) -> Iterator[list[Any]]:
    """The arguments of each process that is needed; the largest model, whose kernels take longest, comes first."""
    descriptions = {json.dumps(description(model), sort_keys=True): model.width for model in models}
    for text in sorted(descriptions, key=lambda text: -descriptions[text]):
        for group in _GROUPS:
            kernels = ",".join(("none", *filter(backend.enabled, group)))
            if kernels == "none":
                continue
            described = json.loads(text)
            missing = [
                shape for shape in shapes if not _mark(folder, described, kernels, shape, packed, half_weights).exists()
            ]
            if missing:
                yield [described, kernels, missing, packed, half_weights]


def _mark(folder: str, *work: object) -> Path:
    """The file that says that the kernels of a model in a shape are in the cache."""
    digest = sha256(json.dumps([_code(), *work], sort_keys=True).encode())
    return Path(folder) / f"lightbert-{digest.hexdigest()[:32]}"


@cache
def _code() -> str:
    """What compiled kernels depend on besides their arguments."""
    digest = sha256(f"{torch.__version__} {version('triton')}".encode())
    for path in sorted(Path(ops.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
