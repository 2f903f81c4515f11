"""Commands of lightbert in processes: several at once, recorded when finished, stopped when the time is over."""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pages import commit
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.train.model_card import publish

_POLL = 0.2
"""Seconds between two looks at a process."""
_GRACE = 60.0
"""Seconds that a process has to save a checkpoint after it was told to stop."""


@dataclass(frozen=True)
class Run:
    """A command, and the path of its record and its log without their suffixes."""

    command: list[str]
    path: Path

    @property
    def log(self) -> Path:
        """The file with what the command printed."""
        return Path(f"{self.path}.log")

    @property
    def record(self) -> Path:
        """The file that is written when the command is finished: the command, and the commit."""
        return Path(f"{self.path}.json")

    @property
    def commit(self) -> str:
        """The commit at which this very command finished; "" if it is not finished."""
        try:
            content = json.loads(self.record.read_text(encoding="utf-8"))
            return str(content["commit"]) if content["command"] == self.command else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def finish(self, is_over: Callable[[], bool], environment: dict[str, str]) -> bool:
        """Run the command unless it is finished or the time is over; return whether it is finished."""
        if self.commit:
            return True
        if is_over():
            return False
        at = commit()
        print(shlex.join(self.command), file=sys.stderr)
        code = run_command(self.command, self.log, is_over, environment)
        if code == 0:
            write_atomic(self.record, json.dumps({"command": self.command, "commit": at}) + "\n")
        elif not is_over():
            print(f"lightbert {self.command[1]} failed; see {self.log}", file=sys.stderr)
        return code == 0


def run_chains(chains: Iterable[Sequence[Run]], jobs: int, is_over: Callable[[], bool]) -> bool:
    """Run chains of commands, as many at once as there are jobs; return whether all are finished.

    Chains that have begun come first. A command that fails ends its chain, an exception ends all.
    """
    failed = threading.Event()
    variables = environment(jobs)

    def finish(chain: Sequence[Run]) -> bool:
        try:
            return all(run.finish(lambda: failed.is_set() or is_over(), variables) for run in chain)
        except BaseException:
            failed.set()
            raise

    ordered = sorted(chains, key=lambda chain: not any(run.log.exists() for run in chain))
    with ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(finish, ordered)))


def environment(jobs: int) -> dict[str, str]:
    """The environment of a process: the cores are divided among the jobs, unless their number is set."""
    cores = str(max(1, (os.cpu_count() or 1) // jobs))
    return {"OMP_NUM_THREADS": cores, "TORCHINDUCTOR_COMPILE_THREADS": cores, **os.environ}


def run_command(command: list[str], log: Path, is_over: Callable[[], bool], environment: dict[str, str]) -> int:
    """Run a command of lightbert to its end, or until the time is over: then it saves a checkpoint and stops."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        print(f"$ {shlex.join(command)}", file=file, flush=True)
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


def published(command: Iterable[str]) -> str:
    """A command with the last parts of absolute paths only."""
    words = [word.partition("=") for word in command]
    return shlex.join(f"{publish(key)}{equals}{publish(value)}" for key, equals, value in words)
