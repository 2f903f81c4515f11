"""Interrupted training commands, as processes: exit codes, pipes whose reader leaves, signals before the first step."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightbert.train.checkpoint import load_newest


def command(corpus: Path, out: Path, **changes: object) -> list[str]:
    values = {"steps": 12, "batch": 4, "length": 16, "workers": 0, "threads": 1, "device": "cpu", "evaluate_batches": 2}
    values |= {"model": corpus / "steady", "generator": 0.5, "data": corpus / "data", "out": out, **changes}
    pairs = [f"{key}={value}" for key, value in values.items()]
    return [sys.executable, "-m", "lightbert", "pretrain", "tiny-rtd", *pairs]


def wait_for_step(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the run has logged a step."""
    for _ in range(600):
        if (out / "metrics.jsonl").exists() and (out / "checkpoints").exists() and any((out / "checkpoints").iterdir()):
            return
        assert process.poll() is None
        time.sleep(0.1)
    pytest.fail("the run has not started")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_whose_messages_nobody_reads_saves_on_a_signal(corpus: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(corpus, out, steps=100_000, checkpoint_every=50, log_every=1),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    process.stdout.close()
    wait_for_step(out, process)
    process.send_signal(number)
    assert process.wait(60) == 75
    assert load_newest(out / "checkpoints") is not None


def test_a_run_whose_reader_leaves_finishes(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shell = " ".join(f"'{part}'" for part in command(corpus, out))
    done = subprocess.run(
        ["bash", "-c", f"{shell} 2>&1 | head -c 1; exit ${{PIPESTATUS[0]}}"], check=False, capture_output=True
    )
    assert done.returncode == 0
    assert (out / "final" / "model.safetensors").exists()


def test_a_signal_while_data_is_read_stops_at_once_with_the_exit_code_of_an_interrupted_run(
    corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    program = """
import sys, time
from lightbert.data.shards import Shards
from lightbert.cli import main
def wait(*_, **__):
    print("reading", flush=True)
    time.sleep(60)
Shards.open = wait
sys.exit(main(sys.argv[1:]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command(corpus, out)[3:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"reading\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert time.monotonic() - began < 10
    assert (process.returncode, errors) == (75, b"interrupted; run the same command again to continue\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_has_the_exit_code_of_an_interrupted_run(
    corpus: Path, tmp_path: Path, number: int
) -> None:
    program = f"""
import os, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "torch":
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Finder())
from lightbert.cli import main
sys.exit(main(sys.argv[1:]))
"""
    arguments = command(corpus, tmp_path / "out")[3:]
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (75, b"interrupted; run the same command again to continue\n")
    assert list(tmp_path.iterdir()) == []
