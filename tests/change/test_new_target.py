"""A new export target, added by the steps of CONTRIBUTING.md, touches two files, and its command runs to the end."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tiny_classifiers import write_tiny_model

import lightbert
from extras import needs_onnx
from lightbert.tasks.kinds.classify import Classify

SOURCE = Path(lightbert.__file__).parent

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


def insert(path: Path, before: str, text: str) -> None:
    content = path.read_text()
    assert content.count(before) == 1, before
    path.write_text(content.replace(before, text + before))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


@needs_onnx
def test_a_new_target_touches_two_files_and_exports_and_predicts(tmp_path):
    copy = tmp_path / "src" / "lightbert"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    targets, runtimes = copy / "deploy" / "targets.py", copy / "tasks" / "predict" / "exported.py"
    insert(targets, "TARGETS: ", TARGET.lstrip("\n"))
    insert(targets, "Onnx(), Pt2()", "CompressedOnnx(), ")
    insert(runtimes, "RUNTIMES: ", RUNTIME.lstrip("\n"))
    insert(
        runtimes,
        '    ".pt2": lambda',
        '    ".xz": lambda path, head, padding, threads: CompressedRuntime(path, head, reads_padding=padding),\n',
    )
    before, after = contents(SOURCE), contents(copy)
    assert [name for name in after if after[name] != before.get(name)] == [
        str(path.relative_to(copy)) for path in (targets, runtimes)
    ]
    model = write_tiny_model(tmp_path / "model", Classify(("bad", "good")))
    command = [sys.executable, "-c", COMMANDS, str(model), str(tmp_path / "out")]
    environment = {"PYTHONPATH": str(tmp_path / "src"), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    usage, _, rest = done.stdout.partition("\n{")
    assert "onnx-xz" in usage
    assert "compressed ONNX" in usage
    report, _, prediction = rest.partition("\n}\n")
    assert json.loads("{" + report + "}")["file"] == "model.xz"
    assert json.loads(prediction)["label"] in ("bad", "good")
    assert "--to onnx-xz supports float32 only, got --int8 dynamic" in done.stderr
