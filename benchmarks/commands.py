"""Commands of lightbert in processes of their own, which save and stop when the time is over."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.pages import commit
from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.train.model_card import publish

_POLL = 0.2
"""Seconds between two looks at a process."""
_GRACE = 60.0
"""Seconds that a process has to save a checkpoint after it was told to stop."""


def environment(jobs: int) -> dict[str, str]:
    """The environment of a process: the cores are divided among the jobs, unless their number is set."""
    cores = str(max(1, (os.cpu_count() or 1) // jobs))
    return {"OMP_NUM_THREADS": cores, "TORCHINDUCTOR_COMPILE_THREADS": cores, **os.environ}


def run_command(command: list[str], log: Path, is_over: Callable[[], bool], environment: dict[str, str]) -> int:
    """Run a command of lightbert to its end, or until the time is over: then it saves a checkpoint and stops."""
    with log.open("a", encoding="utf-8") as file:
        print(f"$ {' '.join(command)}", file=file, flush=True)
        with subprocess.Popen([sys.executable, "-m", *command], stdout=file, stderr=file, env=environment) as process:
            while process.poll() is None:
                if is_over():
                    return _stop(process)
                time.sleep(_POLL)
            return process.returncode


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@dataclass(frozen=True)
class CommandRecord:
    """A command, the commits of all its parts, and whether it is finished."""

    command: tuple[str, ...]
    commits: tuple[str, ...] = ()
    finished: bool = False


def read(path: Path) -> CommandRecord | None:
    """Read a record; None if there is none, or if a crash damaged it."""
    try:
        return from_mapping(CommandRecord, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, InputError):
        return None


def is_finished(path: Path, command: list[str]) -> bool:
    """Whether this very command is recorded as finished; starting it again would only take time."""
    found = read(path)
    return found is not None and found.finished and list(found.command) == command


def begin(path: Path, command: list[str]) -> None:
    """Record that a command is started or continued at the current commit."""
    found = read(path)
    before = found.commits if found is not None and list(found.command) == command else ()
    _write(path, CommandRecord(tuple(command), tuple(dict.fromkeys((*before, commit())))))


def finish(path: Path) -> None:
    """Record that the command that was begun is finished."""
    found = read(path)
    assert found is not None
    _write(path, replace(found, finished=True))


def _write(path: Path, record: CommandRecord) -> None:
    write_atomic(path, json.dumps(to_mapping(record)) + "\n")


@dataclass(frozen=True)
class FinetunedRun:
    """A finished fine-tuning: the task, the seed, and the score by the metric that ranks runs."""

    folder: Path
    task: str
    seed: int
    metric: str
    score: float


def finetuned_runs(folders: Iterable[Path]) -> list[FinetunedRun]:
    """The finished fine-tunings in and below some folders, by task and seed; a seed occurs once for each task."""
    found: dict[tuple[str, int], FinetunedRun] = {}
    for path in sorted({path for folder in folders for path in folder.rglob("result.json")}):
        recipe = read_object(path.with_name("recipe.json"))
        # Pre-trainings have no task.
        if not recipe.get("task"):
            continue
        result = read_object(path)
        key = (recipe["task"], recipe["seed"])
        if key in found:
            raise InputError(f"'{path.parent}' repeats seed {key[1]} of {key[0]}; give one run for each seed")
        found[key] = FinetunedRun(path.parent, *key, result["metric"], result["metrics"][result["metric"]])
    return [found[key] for key in sorted(found)]


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object of a run folder."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' can't be read: {error}; give the folder of a finished run") from error
    if not isinstance(values, dict):
        raise InputError(f"'{path}' must be a JSON object")
    return values


@dataclass(frozen=True)
class Run:
    """A command of a row: its pre-training, or its fine-tuning with one seed."""

    place: int
    """The place of the row in its table."""
    command: list[str]
    path: str
    """The path of record and log, without their suffixes."""

    @property
    def record(self) -> Path:
        """The file that says whether the command is finished."""
        return Path(f"{self.path}.json")

    @property
    def log(self) -> Path:
        """The file with what the command printed."""
        return Path(f"{self.path}.log")

    @property
    def is_finished(self) -> bool:
        """Whether the command is recorded as finished."""
        return is_finished(self.record, self.command)


@dataclass(frozen=True)
class Row:
    """All runs of a row with one pre-training seed."""

    label: str
    pretraining: Run
    finetunings: tuple[Run, ...]

    @property
    def n_finished(self) -> int:
        """The number of finished runs; fine-tunings count once the pre-training is finished."""
        return 1 + sum(run.is_finished for run in self.finetunings) if self.pretraining.is_finished else 0

    @property
    def is_finished(self) -> bool:
        """Whether the row is pre-trained, and fine-tuned with all seeds."""
        return bool(self.finetunings) and self.n_finished == 1 + len(self.finetunings)

    @property
    def state(self) -> str:
        """What is finished and what is missing, as a sentence."""
        if finished := self.n_finished:
            return f"{self.label}: pre-trained, {finished - 1} of {len(self.finetunings)} fine-tunings finished"
        return f"{self.label}: pre-training {'not finished' if self.pretraining.record.exists() else 'not started'}"


def published(command: list[str]) -> str:
    """A command with the last parts of absolute paths only."""
    words = [word.partition("=") for word in command]
    return shlex.join(f"{publish(key)}{equals}{publish(value)}" for key, equals, value in words)


Work = TypeVar("Work")


class WorkQueue(Generic[Work]):
    """Work for up to `jobs` threads, the lowest order first. Call `add` and `run` from one thread; it calls `ended`."""

    def __init__(self, jobs: int, should_stop: Callable[[], bool]) -> None:
        self._jobs = jobs
        self._should_stop = should_stop
        self._failed = False
        self._waiting: list[tuple[tuple[int, ...], int, Work]] = []
        self._numbers = count()

    def add(self, order: tuple[int, ...], work: Work) -> None:
        """Add work; among equal orders, what was added first starts first."""
        heappush(self._waiting, (order, next(self._numbers), work))

    def is_over(self) -> bool:
        """Whether `should_stop` or an exception has ended the run: no more work starts, and running work should end."""
        return self._failed or self._should_stop()

    def run(self, function: Callable[[Work], bool], ended: Callable[[Work, bool], None]) -> None:
        """Call `function` in a thread for all work until it is over, and `ended` with each result; it may add more.

        An exception of either is raised once the functions that are running have returned.
        """
        running: dict[Future[bool], Work] = {}
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                while True:
                    while self._waiting and len(running) < self._jobs and not self.is_over():
                        _, _, work = heappop(self._waiting)
                        running[pool.submit(function, work)] = work
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        ended(running.pop(future), future.result())
            except BaseException:
                self._failed = True
                raise
