"""A new export target, added by the steps of CONTRIBUTING.md, touches two files, and its command runs to the end."""

import json

from source_copy import SourceCopy
from tiny_classifiers import write_tiny_model

from extras import needs_onnx
from lightbert.tasks.kinds.classify import Classify

# Step 1: a class with the names of the target, which writes the file.
TARGET = '''
class CompressedOnnx(Target):
    """A compressed ONNX file."""

    name, title, suffix = "onnx-xz", "compressed ONNX", ".xz"

    def write(
        self, source: "Source", path: Path, int8: "Mode | None", calibration: Sequence["Batch"]
    ) -> "Quantized | None":
        """Write the graph."""
        import lzma

        from lightbert.deploy.onnx.lowering import lower
        from lightbert.deploy.onnx.model import graph_of

        path.write_bytes(lzma.compress(lower(*graph_of(source.model, source.head))))
        return None


'''
# Step 2: a class that runs the file.
RUNTIME = '''
class CompressedRuntime(OnnxRuntime):
    """Runs a compressed ONNX file."""

    def __init__(self, path: Path, head: str, *, reads_padding: bool = False, threads: int = 0) -> None:
        import lzma

        self.head, self.reads_padding = head, reads_padding
        self._session = Session(lzma.decompress(path.read_bytes()), threads)


'''
COMMANDS = """
import sys
from lightbert.cli import main
model, out = sys.argv[1:]
assert main(["export", "--help"]) == 0
assert main(["export", model, "--out", out, "--to", "onnx-xz", "--json"]) == 0
assert main(["predict", out, "good film"]) == 0
assert main(["export", model, "--out", out + "-int8", "--to", "onnx-xz", "--int8", "dynamic"]) == 1
"""


@needs_onnx
def test_a_new_target_touches_two_files_and_exports_and_predicts(tmp_path):
    copy, targets, runtimes = SourceCopy(tmp_path), "deploy/targets.py", "tasks/predict/exported.py"
    copy.insert(targets, "TARGETS: ", TARGET.lstrip("\n"))
    copy.insert(targets, "Onnx(), Pt2()", "CompressedOnnx(), ")
    copy.insert(runtimes, "RUNTIMES: ", RUNTIME.lstrip("\n"))
    copy.insert(
        runtimes,
        '    ".pt2": lambda',
        '    ".xz": lambda path, head, padding, threads: CompressedRuntime(path, head, reads_padding=padding),\n',
    )
    assert copy.changed() == {targets, runtimes}
    model = write_tiny_model(tmp_path / "model", Classify(("bad", "good")))
    done = copy.run(COMMANDS, model, tmp_path / "out")
    usage, _, rest = done.stdout.partition("\n{")
    assert "onnx-xz" in usage
    assert "compressed ONNX" in usage
    report, _, prediction = rest.partition("\n}\n")
    assert json.loads("{" + report + "}")["file"] == "model.xz"
    assert json.loads(prediction)["label"] in ("bad", "good")
    assert "--to onnx-xz supports float32 only, got --int8 dynamic" in done.stderr
