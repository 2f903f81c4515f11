"""A table of three rows whose processes are faked: each writes the result of its command, at once or when told to."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import commands, paper_runs
from benchmarks.paper_runs import Arm, Outcome, Protocol, Table, finetuning_command, folder_of, pretraining_command
from lightbert.progress import Bar

A, B, C = ROWS = tuple(Arm(f"row {name}", name) for name in "abc")
TABLE = Table("Three rows", "", ROWS)
SECONDS = 20.0
"""The longest that a thread of a test waits for another."""


def protocol(out: Path, **changes: object) -> Protocol:
    return Protocol(Path("data"), Path("glue"), out, **{"task_seeds": (0, 1), "tasks": ("cola",), **changes})  # type: ignore[arg-type]


def name_of(command: list[str]) -> str:
    """A short name: a for the pre-training of row a, a.0 for its fine-tuning with seed 0."""
    if command[1] == "pretrain":
        return command[2]
    folder = Path(command[-1].removeprefix("out="))
    return f"{folder.parent.parent.name.removesuffix('-0')}.{folder.name}"


def write_result(command: list[str]) -> int:
    """Write what a command leaves at its end."""
    folder = Path(command[-1].removeprefix("out="))
    if command[1] == "pretrain":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(json.dumps({"held_out": {"mlm_loss": 3.5}}))
        return 0
    run = folder / "runs" / "cola"
    run.mkdir(parents=True, exist_ok=True)
    (run / "recipe.json").write_text(json.dumps({"task": "cola", "seed": int(folder.name)}))
    (run / "result.json").write_text(json.dumps({"metric": "mcc", "metrics": {"mcc": 0.5}}))
    return 0


def finish(arm: Arm, whole: Protocol, *task_seeds: int) -> None:
    """Write what the pre-training of a row and its fine-tunings with these seeds leave when they are finished."""
    folder = folder_of(arm, 0, whole)
    records = {f"{folder}.json": pretraining_command(arm, 0, whole)}
    records |= {f"{folder}-{seed}.json": finetuning_command(arm, 0, seed, whole) for seed in task_seeds}
    for record, command in records.items():
        write_result(command)
        commands.begin(Path(record), command)
        commands.finish(Path(record))


class Processes:
    """Processes that end when the test says so."""

    def __init__(self, jobs: int) -> None:
        self._changed = threading.Condition()
        self._jobs = jobs
        self._ended: set[str] = set()
        self.running: set[str] = set()

    def run(self, command: list[str], log: Path, *_: object) -> int:
        name = name_of(command)
        with self._changed:
            self.running.add(name)
            assert len(self.running) <= self._jobs
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: name in self._ended, SECONDS)
            self.running.remove(name)
            self._changed.notify_all()
        return write_result(command)

    def end(self, name: str, then: set[str]) -> None:
        """End a process, and wait until others are running."""
        self.allow_to_end(name)
        self.expect(then)

    def allow_to_end(self, *names: str) -> None:
        """End processes, those that are not started yet as soon as they start."""
        with self._changed:
            self._ended.update(names)
            self._changed.notify_all()

    def expect(self, names: set[str]) -> None:
        """Wait until these processes are running, and no others."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.running == names, SECONDS), (self.running, names)


@contextmanager
def started(
    out: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> Iterator[tuple[Processes, "Future[list[Outcome]]"]]:
    """The table in a thread, in processes that the test ends."""
    processes = Processes(jobs)
    monkeypatch.setattr(paper_runs, "run_command", processes.run)
    with ThreadPoolExecutor(1) as pool:
        yield processes, pool.submit(paper_runs.run_table, TABLE, protocol(out, jobs=jobs))


def record_starts(monkeypatch: pytest.MonkeyPatch, run: Callable[[list[str]], int] = write_result) -> list[str]:
    """Replace processes by `run`; return the list of the commands that are started from now on."""
    names: list[str] = []

    def start(command: list[str], log: Path, *_: object) -> int:
        names.append(name_of(command))
        return run(command)

    monkeypatch.setattr(paper_runs, "run_command", start)
    return names


def record_bar(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    """Replace the progress bar by one that is not drawn; return the list of the bars that are created from now on."""
    bars: list[Bar] = []

    @contextmanager
    def progress(label: str, total: int, unit: str, done: int) -> Iterator[Bar]:
        bars.append(Bar(label, total, unit, done))
        yield bars[-1]

    monkeypatch.setattr(paper_runs, "progress", progress)
    return bars
