"""Signals and kills at any point: the run saves and exits with 75, and resumes to the bytes of an uninterrupted run."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from children import Moment, exit_code, start
from kills import KILL, kill_at_random
from tiny_runs import assert_same_results, distillation_of, recipe_of

from lightbert import cli
from lightbert.train.checkpoint import load_newest
from lightbert.train.signals import Interruption, StoppedEarlyError, catch_signals

TERM, INT = (signal.SIGTERM,), (signal.SIGINT,)
BOTH = [signal.SIGTERM, signal.SIGINT]
SAVING = "interrupted: saving a checkpoint; a second signal exits at once\n"
STOPPED = "interrupted; run the same command again to continue\n"


# Runs in child processes


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    """Return the folder of an uninterrupted run of an objective."""
    folders = {}

    def run(objective):
        if objective not in folders:
            folders[objective] = tmp_path_factory.mktemp(objective)
            assert exit_code(start(recipe_of(corpus, folders[objective], objective=objective))) == 0
        return folders[objective]

    return run


@pytest.mark.parametrize(
    ("moment", "saved_at"),
    [
        (Moment("step", 0, TERM), 1),
        (Moment("evaluating", 0, INT), 5),
        (Moment("evaluating", 3, TERM), 10),
        # The first four are the recipe and the log, the fourteen after them the first checkpoint.
        (Moment("saving", 5, TERM), 4),
        (Moment("saving", 17, INT), 4),
        (Moment("removing", 0, TERM), 10),
        (Moment("step", 11, INT), 12),
    ],
    ids=str,
)
def test_an_interrupted_run_saves_and_resumes_exactly(corpus, undisturbed, tmp_path, moment, saved_at):
    recipe = recipe_of(corpus, tmp_path)
    assert exit_code(start(recipe, moment)) == 75
    assert load_newest(tmp_path / "checkpoints").facts["step"] == saved_at
    assert "interrupted: saving" in (tmp_path / "stderr").read_text()
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path, undisturbed("rtd"))


def test_a_second_signal_exits_at_once_and_loses_only_the_steps_since_the_checkpoint(corpus, undisturbed, tmp_path):
    for what, number in (("step", 4), ("evaluating", 1), ("saving", 25)):
        recipe = recipe_of(corpus, tmp_path / what)
        both = Moment(what, number, (signal.SIGINT, signal.SIGTERM))
        assert exit_code(start(recipe, both)) == 128 + signal.SIGTERM
        assert load_newest(tmp_path / what / "checkpoints").facts["step"] == 3
        assert exit_code(start(recipe)) == 0
        assert_same_results(tmp_path / what, undisturbed("rtd"))


def test_a_signal_after_the_last_step_does_not_stop_a_finished_run(corpus, undisturbed, tmp_path):
    # The third evaluation is the last one.
    assert exit_code(start(recipe_of(corpus, tmp_path), Moment("evaluating", 4, TERM))) == 0
    assert_same_results(tmp_path, undisturbed("rtd"))


@pytest.mark.parametrize(
    ("objective", "moments"),
    [
        ("rtd", [Moment("step", 1, KILL), Moment("saving", 7, KILL), Moment("evaluating", 1, KILL)]),
        ("mlm", [Moment("saving", 18, KILL), Moment("removing", 0, KILL), Moment("saving", 17, KILL)]),
    ],
)
def test_a_run_survives_kills(corpus, undisturbed, tmp_path, objective, moments):
    recipe = recipe_of(corpus, tmp_path, objective=objective)
    for moment in moments:
        assert exit_code(start(recipe, moment)) == -signal.SIGKILL
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path, undisturbed(objective))
    assert list(tmp_path.rglob(".*")) == []


@pytest.mark.prove
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["rtd", "mlm", "pkt"])
def test_fifty_kills_change_nothing(corpus, tmp_path, kind, capsys):
    if kind == "pkt":
        made = partial(distillation_of, corpus, transfer_steps=15, steps=9)
    else:
        made = partial(recipe_of, corpus, objective=kind, steps=30)
    counted = kill_at_random(made, tmp_path, at_any_moment=50)
    with capsys.disabled():
        print(f"\n{kind}: {counted}")


# Commands


def command(corpus, out, *launcher, **changes):
    values = {"steps": 12, "batch": 4, "length": 16, "workers": 0, "threads": 1, "device": "cpu", "evaluate_batches": 2}
    values |= {"model": corpus / "steady", "generator": 0.5, "data": corpus / "data", "out": out, **changes}
    pairs = [f"{key}={value}" for key, value in values.items()]
    return [sys.executable, "-m", *launcher, "lightbert", "pretrain", "tiny-rtd", *pairs]


def begin(words):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_a_checkpoint(out, process):
    while not (out / "checkpoints").exists() or not any((out / "checkpoints").glob("step-*")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.01)


RESUMABLE = {"steps": 60, "checkpoint_every": 6, "keep_checkpoints": "true", "evaluate_every": 40}


def test_a_signal_saves_and_exits_with_75_and_the_same_command_resumes(corpus, tmp_path, capsys):
    out = tmp_path / "disturbed"
    first = begin([*command(corpus, out, **RESUMABLE), "--json"])
    wait_for_a_checkpoint(out, first)
    first.send_signal(signal.SIGTERM)
    printed, errors = first.communicate()
    assert first.returncode == 75
    assert SAVING in errors
    report = json.loads(printed)
    assert not report["finished"]
    assert report["model"] is None
    assert (out / "checkpoints" / f"step-{report['step']}" / "manifest.json").exists()

    for name in ("disturbed", "undisturbed"):
        assert cli.main([*command(corpus, tmp_path / name, **RESUMABLE)[3:], "--json"]) == 0
        printed = capsys.readouterr().out
        assert json.loads(printed)["step"] == 60
        assert json.loads(printed)["metrics"]["rtd_accuracy"] > 0
    assert_same_results(out, tmp_path / "undisturbed")


@pytest.mark.prove
def test_processes_under_torchrun_save_on_a_signal_and_print_one_report(corpus, tmp_path):
    words = command(corpus, tmp_path / "out", "torch.distributed.run", "--nproc-per-node=2", "-m", **RESUMABLE)
    first = begin([*words, "--json"])
    wait_for_a_checkpoint(tmp_path / "out", first)
    first.send_signal(signal.SIGTERM)
    printed, _ = first.communicate()
    assert first.returncode != 0
    step = json.loads(printed)["step"]
    assert (tmp_path / "out" / "checkpoints" / f"step-{step}" / "manifest.json").exists()
    second = begin([*words, "--json"])
    printed, errors = second.communicate()
    assert second.returncode == 0, errors
    assert json.loads(printed)["step"] == 60
    assert f"training: {step}/60" not in errors


def test_a_run_whose_messages_nobody_reads_saves_on_a_signal(corpus, tmp_path):
    words = command(corpus, tmp_path, steps=100_000, checkpoint_every=50, log_every=1)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    wait_for_a_checkpoint(tmp_path, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 75
    assert load_newest(tmp_path / "checkpoints") is not None


def test_a_run_whose_reader_leaves_finishes(corpus, tmp_path):
    shell = " ".join(f"'{part}'" for part in command(corpus, tmp_path))
    script = f"{shell} 2>&1 | head -c 1; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", script], check=False, capture_output=True).returncode == 0
    assert (tmp_path / "final" / "model.safetensors").exists()


def test_a_signal_while_data_is_read_stops_at_once_with_the_exit_code_of_an_interrupted_run(corpus, tmp_path):
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
    process = begin([sys.executable, "-c", program, *command(corpus, tmp_path / "out")[3:]])
    assert process.stdout.readline() == "reading\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert time.monotonic() - began < 10
    assert (process.returncode, errors) == (75, STOPPED)


def test_a_signal_during_the_imports_has_the_exit_code_of_an_interrupted_run(corpus, tmp_path):
    program = """
import os, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "torch":
            os.kill(os.getpid(), {})
sys.meta_path.insert(0, Finder())
from lightbert.cli import main
sys.exit(main(sys.argv[1:]))
"""
    for number in BOTH:
        process = begin([sys.executable, "-c", program.format(int(number)), *command(corpus, tmp_path / "out")[3:]])
        _, errors = process.communicate()
        assert (process.returncode, errors) == (75, STOPPED)
        assert list(tmp_path.iterdir()) == []


# Handlers


def test_the_first_signal_sets_the_flag_and_with_nothing_to_save_stops_at_once(capfd):
    assert not Interruption()
    before = [signal.getsignal(number) for number in BOTH]
    for number in BOTH:
        with catch_signals() as caught, caught.deferred():
            assert [signal.getsignal(number) for number in BOTH] != before
            assert not caught
            os.kill(os.getpid(), number)
            assert caught
            assert caught.signal == number
        assert capfd.readouterr().err == SAVING
        with catch_signals() as caught:
            with caught.deferred():
                pass
            with pytest.raises(StoppedEarlyError):
                os.kill(os.getpid(), number)
        assert capfd.readouterr().err == STOPPED
    assert [signal.getsignal(number) for number in BOTH] == before


def test_a_signal_after_the_reader_of_the_messages_has_left_sets_the_flag():
    read, write = os.pipe()
    os.close(read)
    before = os.dup(2)
    os.dup2(write, 2)
    try:
        with catch_signals() as caught, caught.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            assert caught
    finally:
        os.dup2(before, 2)
        for descriptor in (before, write):
            os.close(descriptor)


def test_the_second_signal_exits_at_once():
    script = """
import os, signal, sys
from lightbert.train.signals import catch_signals
with catch_signals() as caught, caught.deferred():
    try:
        os.kill(os.getpid(), int(sys.argv[1]))
        os.kill(os.getpid(), int(sys.argv[2]))
    finally:
        print("cleaned up")
"""
    for first, second in (BOTH[:1] * 2, BOTH, BOTH[::-1]):
        words = [sys.executable, "-c", script, str(int(first)), str(int(second))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 128 + second
        assert done.stdout == ""
