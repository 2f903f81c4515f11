"""docs/deploy.md is true: its Python runs, its options exist, its commands parse."""

import re
import shlex
from pathlib import Path

import pytest
from tiny_classifiers import tiny_model, write_tiny_model
from torch import nn

import lightbert
from extras import needs_onnx
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.tasks.kinds.classify import Classify

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
EXPORTS = [line.partition("#")[0] for line in PAGE.splitlines() if line.startswith("lightbert export ")]


@needs_onnx
def test_the_python_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export(tiny_model(Classify(("bad", "good"))), "topics-onnx")
    export(tiny_model(None), "states-onnx")
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        names: dict[str, object] = {}
        exec(f"import lightbert\n{example}", names)
    assert names["logits"].shape == (1, 2)


def test_the_table_lists_every_option(capsys):
    assert main(["export", "--help"]) == 0
    known = set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out)) - {"--help", "--json", "--out"}
    table = " ".join(row for row in PAGE.splitlines() if row.startswith("| `--"))
    assert set(re.findall(r"--[a-z][\w-]*", table)) == known


@needs_onnx
@pytest.mark.parametrize("line", [line for line in EXPORTS if "executorch" not in line])
def test_the_export_commands_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    topics = tiny_model(Classify(("bad", "good")))
    # As after quantization-aware training.
    topics.ranges = {
        name: (-9.0, 9.0) for name, part in topics.blocks.named_modules(prefix="blocks") if isinstance(part, nn.Linear)
    }
    lightbert.save(topics, tmp_path / "runs" / "topics" / "final")
    write_tiny_model(tmp_path / "runs" / "mine" / "final", None)
    rows = [f"a {label} film,{label}" for label in ("good", "bad") * 4]
    (tmp_path / "dev.csv").write_text("\n".join(["body,topic", *rows]) + "\n")
    arguments = shlex.split(line.removeprefix("lightbert "))
    # Random weights: the metric of a few examples may change by more than it does for a trained model.
    loss = ["--max-loss", "100"] if "--data" in arguments else []
    assert main([*arguments, *loss]) == 0
