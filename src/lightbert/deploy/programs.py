"""Models as programs of torch.export: archives for PyTorch, and files for ExecuTorch."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.export import Dim

from lightbert.deploy.int8_tables import quantize_tables
from lightbert.deploy.joined_layers import join_layers
from lightbert.deploy.program_rewrites import rewrite
from lightbert.deploy.verification import Batch
from lightbert.errors import InputError, required
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.inference import Inference
from lightbert.tasks.predict.exported import SHORTEST, STATES

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_DEFAULT_LENGTH = 512
_MAX_BATCH = 4096


class _Program(nn.Module):
    """Ids, mask and segments [B, T] to a plain tuple of outputs."""

    def __init__(self, model: Encoder, head: str) -> None:
        super().__init__()
        encoder = model.encoder if isinstance(model, Model) else model
        self.inference: nn.Module = encoder if head == STATES else Inference(encoder, head)
        self.eval()

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        outputs = self.inference(ids, mask, segments)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def exported_program(model: Encoder, head: str, *, any_batch: bool) -> "ExportedProgram":
    """Trace a model with dynamic length, and with `any_batch` dynamic batch size; one row otherwise."""
    # The beam search depends on whether a text is shorter than the beam, which torch.export can't express.
    if head in ("beam", "choice"):
        raise InputError(f"head {head!r} can only be exported to ONNX; use --to onnx")
    return _traced(_Program(model, head), model, any_batch=any_batch)


def _traced(module: nn.Module, model: Encoder, *, any_batch: bool) -> "ExportedProgram":
    example = torch.ones(2 if any_batch else 1, SHORTEST + 4, dtype=torch.int64)
    shape = {1: Dim("tokens", min=SHORTEST, max=model.positions or _DEFAULT_LENGTH)}
    if any_batch:
        shape[0] = Dim("batch", min=1, max=_MAX_BATCH)
    with warnings.catch_warnings():
        # About torch's own insides.
        warnings.simplefilter("ignore")
        return torch.export.export(module, (example, example != 0, example * 0), dynamic_shapes=(shape, shape, shape))


def int8_program(program: "ExportedProgram", model: Encoder, batch: Batch) -> "ExportedProgram":
    """Quantize the linear layers of a program for XNNPACK: weights per channel, inputs by their range in every call.

    Layers that read the same input become one. Embedding tables become integers with one scale per row.
    batch: any text; it runs once, as the tools of torchao require.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with required("export to ExecuTorch requires executorch and torchao", "lightbert[executorch]"):
            from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
            from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        scheme = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
        module = program.module()
        join_layers(module)
        prepared = prepare_pt2e(module, xnnpack.XNNPACKQuantizer().set_global(scheme))
        prepared(*(torch.from_numpy(each[:1]) for each in (batch.ids, batch.mask, batch.segments)))
        converted = convert_pt2e(prepared)
        quantize_tables(converted)
        return _traced(converted, model, any_batch=False)


def linear_layers(program: "ExportedProgram") -> int:
    """The number of linear layers of a program."""
    return sum(node.target is torch.ops.aten.linear.default for node in program.graph.nodes)


def write_pt2(program: "ExportedProgram", path: Path) -> None:
    """Write an archive that PyTorch runs without lightbert."""
    torch.export.save(program, path)


def write_pte(program: "ExportedProgram", path: Path, *, int8: bool = False) -> None:
    """Write a file for ExecuTorch that runs linear layers and arithmetic with XNNPACK.

    int8: the program comes from `int8_program`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with required("export to ExecuTorch requires executorch", "lightbert[executorch]"):
            from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
        partitioners = [XnnpackPartitioner()]
        if int8:
            # Quantized layers first, one by one: a group of them and the arithmetic between them can depend on itself.
            dynamic = XnnpackPartitioner(config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, per_op_mode=True)
            partitioners.insert(0, dynamic)
        rewrite(program)
        # The checks after each pass take a tenth of the time; whoever exports compares the outputs of the file.
        unchecked = EdgeCompileConfig(_check_ir_validity=False)
        lowered = to_edge_transform_and_lower(program, partitioner=partitioners, compile_config=unchecked)
        path.write_bytes(lowered.to_executorch().buffer)
