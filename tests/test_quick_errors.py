"""The arguments of commands are checked before torch is imported, which takes seconds."""

import json
import subprocess
import sys

from lightbert.commands import COMMANDS

# Runs command lines one after another; for each its exit code, its errors, and what it has imported.
PROGRAM = """
import contextlib, io, json, sys
from lightbert.cli import main

results = []
for line in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(line.split())
    results.append([code, errors.getvalue(), [*{"torch", "numpy", "transformers", "tokenizers"} & set(sys.modules)]])
print(json.dumps(results))
"""
LINES = (
    ("pretrain nosuch", 1, "unknown recipe 'nosuch'; 'lightbert recipes' lists them"),
    ("pretrain tiny-rtd stepz=5", 1, "unknown key 'stepz'; did you mean 'steps'?"),
    ("pretrain tiny-rtd data=d", 1, "out is required; add out=FOLDER"),
    ("pretrain classify", 1, "'classify' is a recipe for finetune; run 'lightbert finetune classify …'"),
    ("distill tiny-distill alpha=2", 1, "alpha must be in [0, 1], got 2.0"),
    ("finetune classify dev=x.csv", 1, "unknown key 'dev'; did you mean 'data.dev'?"),
    ("finetune classify model=m out=o", 1, "a recipe requires training data"),
    ("pretrain tiny-rtd --out x", 2, "unknown option '--out'; keys are given without dashes; write out=x"),
    ("pretrain tiny-rtd --batch-size=8", 2, "keys are given without dashes; write batch=8"),
    ("finetune classify --train x.csv", 2, "keys are given without dashes; write data.train=x.csv"),
    ("finetune classify --steps", 2, "keys are given without dashes; write steps=VALUE"),
    ("predict model text --out my.xlsx", 1, "must end in one of .jsonl, .ndjson, .csv, .tsv, got 'my.xlsx'"),
    ("finetune classify --jsn", 2, "unknown option '--jsn'; did you mean '--json'?"),
    ("serve --model m", 2, "unknown option '--model'; MODEL is given without an option: lightbert serve MODEL"),
    ("analyse --model m", 2, "SUBJECT is given without an option: lightbert analyse NAME SUBJECT"),
    ("convert m --to hf --out o", 2, "TARGET is given without an option: lightbert convert SOURCE TARGET"),
    ("embed m --file f", 2, "FILE is given without an option: lightbert embed MODEL FILE"),
    ("predict m --data f", 2, "unknown option '--data'; did you mean '--file'?"),
    ("prepare f --out o --column c", 2, "unknown option '--column'; did you mean '--text'?"),
    ("embed m f --output x.npy", 2, "unknown option '--output'; did you mean '--out'?"),
    ("serve m --colour", 2, "unknown option '--colour'; choose from --host, --port"),
    ("demo --minutes -1", 1, "--minutes must be > 0 and finite, got -1.0"),
    ("demo --minutes 0", 1, "--minutes must be > 0 and finite, got 0.0"),
    ("demo --minutes nan", 1, "minutes must be a finite number, got nan"),
    ("export m --out o --max-loss -1", 1, "--max-loss must be >= 0, got -1.0"),
    ("finetune classify model=m data.train=no.csv out=o", 1, "'no.csv' not found; check the path"),
    ("finetune classify model=m task=rte data=no out=o", 1, "'no' not found; check the path"),
    ("pretrain tiny-rtd data=no out=o steps=1", 1, "'no' has no manifest.json; give a folder written by"),
    ("distill tiny-distill data=no out=o teacher=t", 1, "'no' has no manifest.json; give a folder written by"),
    ("evaluate m --data no.csv", 1, "'no.csv' not found; check the path"),
    ("embed m no.txt --out x.npy", 1, "'no.txt' not found; check the path"),
    ("predict m --file no.csv", 1, "'no.csv' not found; check the path"),
    (f"recipes {'a' * 5000}", 1, "the name 'aaa"),
    (f"pretrain {'a' * 5000}", 1, "aaa…' is too long for a file or folder; check the order of the arguments"),
    ("predict m", 1, "give one of: texts, --question with --context, --file PATH"),
    ("predict m a b --pair c", 1, "--pair must be given once per text, got 1 for 2 texts"),
    ("predict ./no text", 1, "model './no' not found; give a folder with config.json"),
    ("serve ./no", 1, "model './no' not found; give a folder with config.json"),
    ("export ./no --out o", 1, "model './no' not found; give a folder with config.json"),
    ("predict tuned --file my.csv --text body", 1, "has no column 'body', only 'text', 'label'; set its name with"),
    (
        "evaluate tuned --data my.csv --label topic",
        1,
        "has no column 'topic', only text, label; set --label COLUMN",
    ),
    ("embed tuned my.csv --text body --out x.npy", 1, "has no column 'body', only 'text', 'label'; set its name"),
    ("finetune --help", 0, ""),
    ("recipes", 0, ""),
)


def results_of(lines, folder):
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=json.dumps(lines), cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_arguments_are_checked_without_torch(tmp_path):
    (tmp_path / "my.csv").write_text("text,label\ngood,yes\n")
    (tmp_path / "tuned").mkdir()
    config = {"model_type": "lightbert", "family": "convbert", "task": {"kind": "classify", "labels": ["no", "yes"]}}
    (tmp_path / "tuned" / "config.json").write_text(json.dumps(config))
    results = results_of([line for line, *_ in LINES], tmp_path)
    for (line, expected, sentence), (code, errors, imported) in zip(LINES, results, strict=True):
        assert sentence in errors, (line[:99], errors)
        assert (code, "torch" in imported) == (expected, False), (line[:99], errors)


def test_help_imports_no_heavy_package(tmp_path):
    lines = ["--help", *(f"{verb} --help" for verb in COMMANDS)]
    for line, (code, _, imported) in zip(lines, results_of(lines, tmp_path), strict=True):
        assert (code, imported) == (0, []), line


def test_the_data_are_read_and_summarized_without_torch(tmp_path):
    (tmp_path / "my.csv").write_text("body,topic\n" + "a text,x\nanother text,y\n" * 9)
    finetune = "finetune classify model=m out=o data.train=my.csv data.text=body"
    [[_, errors, imported]] = results_of([f"{finetune} data.label=topick"], tmp_path)
    assert "has no column 'topick', only body, topic" in errors
    assert "torch" not in imported
    without_torch = "import sys; sys.modules['torch'] = None; from lightbert.cli import main; main(sys.argv[1:])"
    line = [sys.executable, "-c", without_torch, *finetune.split(), "data.label=topic"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("own: classify, 2 labels (x, y); ")
