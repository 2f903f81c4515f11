"""`lightbert pretrain` as a subprocess: run to the end, and interrupted by a signal."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_runs import assert_same_results, recipe_of, train

from lightbert.errors import InputError

RECIPE = """
model = "{model}"
data = "{data}"
generator = 0.5
steps = 80
batch = 4
length = 16
checkpoint_every = 3
keep_checkpoints = true
evaluate_every = 40
evaluate_batches = 2
device = "cpu"

[schedule]
warmup = 0.1
"""


TORCHRUN = ("torch.distributed.run", "--nproc-per-node=2", "-m")


def started(recipe: Path, out: Path, *launcher: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, "lightbert", "pretrain", str(recipe), f"out={out}", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for_a_checkpoint(process: subprocess.Popen[str], out: Path) -> None:
    while not (out / "checkpoints" / "step-3").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def test_a_signal_saves_and_exits_with_75_and_the_same_command_resumes(corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(model=corpus / "model", data=corpus / "data"))
    out = tmp_path / "disturbed"
    first = started(recipe, out)
    wait_for_a_checkpoint(first, out)
    first.send_signal(signal.SIGTERM)
    printed, errors = first.communicate()
    assert first.returncode == 75
    assert "interrupted: saving a checkpoint; a second signal exits at once" in errors
    report = json.loads(printed)
    assert not report["finished"]
    assert report["model"] is None
    assert (out / "checkpoints" / f"step-{report['step']}" / "manifest.json").exists()

    second, undisturbed = started(recipe, out), started(recipe, tmp_path / "undisturbed")
    for process in (second, undisturbed):
        printed, errors = process.communicate()
        assert process.returncode == 0, errors
        assert json.loads(printed)["step"] == 80
        assert json.loads(printed)["metrics"]["rtd_accuracy"] > 0
    assert_same_results(out, tmp_path / "undisturbed")


@pytest.mark.prove
def test_processes_under_torchrun_save_on_a_signal_and_print_one_report(corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(model=corpus / "model", data=corpus / "data"))
    first = started(recipe, tmp_path / "out", *TORCHRUN)
    wait_for_a_checkpoint(first, tmp_path / "out")
    first.send_signal(signal.SIGTERM)
    printed, _ = first.communicate()
    assert first.returncode != 0
    step = json.loads(printed)["step"]
    assert (tmp_path / "out" / "checkpoints" / f"step-{step}" / "manifest.json").exists()
    second = started(recipe, tmp_path / "out", *TORCHRUN)
    printed, errors = second.communicate()
    assert second.returncode == 0, errors
    assert json.loads(printed)["step"] == 80
    assert f"training: {step}/80" not in errors


def test_the_error_for_a_mistyped_preset_suggests_the_nearest_one(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'convbert-small'"):
        train(recipe_of(corpus, tmp_path, model="convbert-smal"))


def test_the_error_for_a_missing_model_folder_names_it(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model folder 'some/where' not found"):
        train(recipe_of(corpus, tmp_path, model="some/where"))
