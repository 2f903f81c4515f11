"""The number of threads is in the environment before torch is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightbert.processes import has_threads, set_threads

COMMAND = """
import importlib, os, sys
from lightbert import cli
from lightbert.commands import COMMANDS
module = importlib.import_module(COMMANDS[sys.argv[1]][0].partition(":")[0])
for name in ("check_corpus", "_check_files"):
    setattr(module, name, lambda *arguments: None)
stop = lambda *arguments: sys.exit(f"{os.environ['OMP_NUM_THREADS']}, torch: {'torch' in sys.modules}")
module.run = module.run_all = stop
cli.main(sys.argv[1:])
"""


def printed(code: str, *arguments: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder)
    return done.stdout + done.stderr


def test_torch_reads_the_number_when_it_is_imported(tmp_path):
    # Builds of torch with MKL use no more threads than there are cores; without a number, they use all.
    code = (
        "from lightbert.processes import set_threads\n"
        "set_threads(1)\nset_threads(0)\nimport torch\nset_threads(2)\n"
        "import os\nprint(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])"
    )
    assert printed(code, folder=tmp_path) == "1 1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", "tiny-rtd", "data=d", "out=o", "threads=5"),
        ("distill", "tiny-distill", "data=d", "out=o", "teacher=t", "threads=5"),
        ("finetune", "classify", "data.train=d.csv", "model=bert-tiny", "out=o", "threads=5"),
        ("serve", "bert-tiny", "--threads", "5"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_sets_the_number_before_it_imports_torch(tmp_path, arguments):
    (tmp_path / "d.csv").write_text("text,label\n" + "a good film,good\na bad film,bad\n" * 20)
    assert printed(COMMAND, *arguments, folder=tmp_path).endswith("5, torch: False\n")


def test_torch_that_is_imported_keeps_its_number(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    set_threads(2)
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_the_environment_has_a_number_of_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert has_threads(1)
    assert has_threads(0)
    assert not has_threads(2)
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert not has_threads(1)
    assert has_threads(0)
