"""What a model can be exported to. A target is a class that has its names and writes its file.

`lightbert.tasks.predict.exported` has the runtime of each suffix. Nothing here imports torch before a file is written.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lightbert.errors import InputError

if TYPE_CHECKING:
    from lightbert.deploy.quantization import Mode, Quantized
    from lightbert.deploy.verification import Batch, Source


class Target:
    """A kind of file."""

    name: ClassVar[str]
    """The value of --to."""
    title: ClassVar[str]
    suffix: ClassVar[str]
    int8: ClassVar[tuple[str, ...]] = ()
    """The supported modes of --int8."""
    shortest: ClassVar[int] = 1
    """The number of tokens of the shortest rows; the runtime pads shorter ones."""

    @classmethod
    def check(cls, int8: "Mode | None") -> None:
        """Raise an InputError if the target doesn't support a mode."""
        if int8 is not None and int8 not in cls.int8:
            supported = f"--int8 {' or '.join(cls.int8)} only" if cls.int8 else "float32 only"
            raise InputError(f"--to {cls.name} supports {supported}, got --int8 {int8}; use --to onnx")

    def write(
        self, source: "Source", path: Path, int8: "Mode | None", calibration: Sequence["Batch"]
    ) -> "Quantized | None":
        """Write the file; return what was quantized, if anything.

        calibration: batches of the user's texts, on which ranges and errors are measured; English sentences if empty.
        """
        raise NotImplementedError


class Onnx(Target):
    """An ONNX graph, optimized for ONNX Runtime on CPUs."""

    name, title, suffix = "onnx", "ONNX", ".onnx"
    int8 = ("dynamic", "static", "qat")

    def write(
        self, source: "Source", path: Path, int8: "Mode | None", calibration: Sequence["Batch"]
    ) -> "Quantized | None":
        """Write the graph; layers that lose too much in int8 stay in float32."""
        from lightbert.deploy.onnx.lowering import Range, lower
        from lightbert.deploy.onnx.model import graph_of
        from lightbert.deploy.quantization import quantize
        from lightbert.deploy.verification import sentence_pooling

        # A learned range is that of the input in the model, so nothing may be folded into it.
        pooling, folding = sentence_pooling(source.model, source.head), int8 != "qat"
        graph, outputs = graph_of(source.model, source.head, pooling=pooling, folding=folding, int8=int8 is not None)
        if int8 is None:
            path.write_bytes(lower(graph, outputs))
            return None
        texts, ranges = source.texts, source.model.ranges if int8 == "qat" else {}
        learned = {name: Range(*values) for name, values in ranges.items()}
        content, quantized = quantize(
            graph, outputs, int8, calibration or texts, lambda session: source.compare(session, texts), learned
        )
        path.write_bytes(content)
        return quantized


class Pt2(Target):
    """An archive of torch.export, which PyTorch runs without lightbert."""

    name, title, suffix = "pt2", "PyTorch", ".pt2"
    shortest = 3

    def write(
        self, source: "Source", path: Path, int8: "Mode | None", calibration: Sequence["Batch"]
    ) -> "Quantized | None":
        """Write the archive."""
        from lightbert.deploy.programs import exported_program, write_pt2

        write_pt2(exported_program(source.model, source.head, any_batch=True), path)
        return None


class ExecuTorch(Target):
    """A program for ExecuTorch with XNNPACK; it reserves memory for its largest inputs, so it takes one row."""

    name, title, suffix = "executorch", "ExecuTorch", ".pte"
    int8 = ("dynamic",)
    shortest = 3

    def write(
        self, source: "Source", path: Path, int8: "Mode | None", calibration: Sequence["Batch"]
    ) -> "Quantized | None":
        """Write the program; int8 quantizes its linear layers, with the range of their inputs in every call."""
        from lightbert.deploy.programs import exported_program, int8_program, linear_layers, write_pte
        from lightbert.deploy.quantization import Quantized

        program = exported_program(source.model, source.head, any_batch=False)
        layers = linear_layers(program)
        if int8:
            batch = next(batch for batch in source.inputs if batch.ids.shape[1] >= self.shortest)
            program = int8_program(program, source.model, batch)
        write_pte(program, path, int8=int8 is not None)
        return Quantized((), layers) if int8 else None


TARGETS: dict[str, Target] = {target.name: target for target in (Onnx(), Pt2(), ExecuTorch())}
