"""Export a model to ONNX, to an archive of torch.export, or to ExecuTorch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lightbert.deploy.onnx.int8 import Range
from lightbert.deploy.onnx.lowering import Int8, lower
from lightbert.deploy.onnx.model import graph_of
from lightbert.deploy.outcome import Export
from lightbert.deploy.programs import exported_program, int8_program, linear_layers, write_pt2, write_pte
from lightbert.deploy.publication import Guard, Source, publish
from lightbert.deploy.quantization import Mode, Quantized, quantize
from lightbert.deploy.verification import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.quantization import simulated_copy
from lightbert.tasks.predict.exported import FILES, SHORTEST, STATES

_NO_BOUND = Guard()


def export_onnx(
    model: Model,
    out: str | Path,
    *,
    head: str = "",
    int8: Mode | None = None,
    calibration: Sequence[Batch] = (),
    guard: Guard = _NO_BOUND,
) -> Export:
    """Write a folder with model.onnx, config.json and the tokenizer; it appears once the file is verified.

    head: the head to export; "" = that of the model's task, or "states" if it has none. "states" exports the hidden
    states.
    int8: quantize the weights, and the inputs of layers by their own range ("dynamic"), a calibrated one ("static"), or
    the one that quantization-aware training has learned ("qat").
    calibration: batches of the user's texts, on which ranges and errors are measured; English sentences if empty.
    """
    qat = int8 == "qat"
    if qat and not model.ranges:
        raise InputError(
            "--int8 qat requires a model that was fine-tuned with quantization_aware=true; use --int8 dynamic, or "
            "--int8 static with --data"
        )

    learned = {name: Range(*values) for name, values in model.ranges.items()} if qat else None
    source = Source(model, head, trained=simulated_copy(model, model.ranges) if qat else None)

    def write(path: Path) -> Quantized | None:
        # A learned range is that of the input in the model, so nothing may be folded into it.
        graph, outputs = graph_of(source.model, source.head, folding=not qat, int8=int8 is not None)
        if int8 is None:
            path.write_bytes(lower(graph, outputs))
            return None
        texts = source.texts
        done = quantize(
            graph,
            outputs,
            int8,
            calibration or texts,
            lambda session: source.compare(session, texts),
            learned,
        )
        path.write_bytes(done.content)
        return done

    return publish(source, out, FILES["onnx"], "float32" if int8 is None else f"int8 {int8}", write, guard)


def export_program(
    model: Model,
    out: str | Path,
    *,
    to: Literal["pt2", "executorch"],
    head: str = "",
    int8: bool = False,
    guard: Guard = _NO_BOUND,
) -> Export:
    """Write a folder with model.pt2, for PyTorch without lightbert, or model.pte, for ExecuTorch.

    int8: quantize the linear layers of a .pte, with the range of their inputs in every call.
    """
    if int8 and to != "executorch":
        raise InputError(f"int8 requires to='executorch', got to={to!r}")
    source = Source(model, head, SHORTEST)

    def write(path: Path) -> Quantized | None:
        # A .pte reserves memory for its largest inputs, so it takes one row at a time.
        program = exported_program(source.model, source.head, any_batch=to == "pt2")
        if to == "pt2":
            write_pt2(program, path)
            return None
        layers = linear_layers(program)
        if int8:
            first = next(batch for batch in source.inputs if batch.ids.shape[1] >= SHORTEST)
            program = int8_program(program, source.model, first)
        write_pte(program, path, int8=int8)
        return Quantized(b"", (), layers) if int8 else None

    return publish(source, out, FILES[to], "int8 dynamic" if int8 else "float32", write, guard)


def export_content(encoder: Encoder, *, int8: bool = False) -> bytes:
    """The content of an ONNX file of an encoder's states, unverified and without calibration, for benchmarks."""
    graph, outputs = graph_of(encoder, STATES, int8=int8)
    return lower(graph, outputs, Int8() if int8 else None)
