"""Models as programs of torch.export: archives for PyTorch, and files for ExecuTorch."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.export import Dim

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.inference import Inference
from lightbert.tasks.predict.exported import STATES
from lightbert.tasks.predict.program_runtime import SHORTEST

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_DEFAULT_LENGTH = 512
_MAX_BATCH = 4096


class _Program(nn.Module):
    """Ids, mask and segments [B, T] to a plain tuple of outputs."""

    def __init__(self, model: Model, head: str) -> None:
        super().__init__()
        self.inference: nn.Module = model.encoder if head == STATES else Inference(model.encoder, head)
        self.eval()

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        outputs = self.inference(ids, mask, segments)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def exported_program(model: Model, head: str, *, any_batch: bool) -> "ExportedProgram":
    """Trace a model with dynamic length, and with `any_batch` dynamic batch size; one row otherwise."""
    # The beam search depends on whether a text is shorter than the beam, which torch.export can't express.
    if head in ("beam", "choice"):
        raise InputError(f"head {head!r} can only be exported to ONNX; use --to onnx")
    example = torch.ones(2 if any_batch else 1, SHORTEST + 4, dtype=torch.int64)
    shape = {1: Dim("tokens", min=SHORTEST, max=model.positions or _DEFAULT_LENGTH)}
    if any_batch:
        shape[0] = Dim("batch", min=1, max=_MAX_BATCH)
    with warnings.catch_warnings():
        # About torch's own insides.
        warnings.simplefilter("ignore")
        return torch.export.export(
            _Program(model, head), (example, example != 0, example * 0), dynamic_shapes=(shape, shape, shape)
        )


def write_pt2(program: "ExportedProgram", path: Path) -> None:
    """Write an archive that PyTorch runs without lightbert."""
    torch.export.save(program, path)


def write_pte(program: "ExportedProgram", path: Path) -> None:
    """Write a file for ExecuTorch that runs linear layers and arithmetic with XNNPACK."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower
        except ImportError as error:
            raise InputError(
                f"export to ExecuTorch requires executorch ({error}); install it with: pip install "
                "'lightbert[executorch]'"
            ) from None
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        path.write_bytes(lowered.to_executorch().buffer)
