"""Cases of the training benchmark, or versions of lightbert, timed alternately: `python -m benchmarks.compare`.

Two runs of a step differ by more than most changes are worth, and a GPU that is limited by its power is slower after
some work than after other work. Here every case has a process of its own, compiled and captured, and all are called in
each round, in random order. The difference to the first one is the mean over rounds, with its standard error.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import IO

import torch

from benchmarks import compare_process
from benchmarks.pages import run_main
from benchmarks.training_cases import CASES, Case, matching
from lightbert.errors import InputError
from lightbert.progress import progress
from lightbert.train.compilation import keep_compiled_code

_FEWEST = 2
"""Rounds that a standard error needs."""


@dataclass(frozen=True)
class Candidate:
    """A case, and the folder of the source whose lightbert runs it; by default that of this process."""

    case: Case
    source: Path | None = None

    def __str__(self) -> str:
        return f"{self.case.name} ({self.source})" if self.source else self.case.name


@dataclass(frozen=True)
class Settings:
    """How often candidates are called.

    seconds: no round starts after this time.
    """

    rounds: int = 24
    calls: int = 12
    seconds: float = 300.0
    device: str = "cuda"
    seed: int = 0


@dataclass(frozen=True)
class Difference:
    """A candidate's times, compared with those of the first candidate in the same rounds."""

    name: str
    milliseconds: float
    """The median."""
    difference: float
    """Milliseconds more than the first; the mean over rounds."""
    difference_error: float
    """Its standard error."""
    ratio: float
    """Of its time to that of the first; the mean over rounds."""
    ratio_error: float


def candidates(names: Sequence[str], sources: Sequence[Path] = ()) -> list[Candidate]:
    """Every case in every source; a text that is no case's name selects all cases whose name contains it."""
    for source in sources:
        if not (source / "src" / "lightbert").is_dir():
            raise InputError(
                f"--sources must be folders that contain src/lightbert, got '{source}'; give clones of lightbert"
            )
    named = {case.name: case for case in CASES}
    chosen: list[Case] = []
    for name in names:
        # No name has an x of its own.
        exact = named.get(name.replace("x", "×"))
        chosen += matching(name) if exact is None else [exact]
    found = [Candidate(case, source) for case in dict.fromkeys(chosen) for source in sources or (None,)]
    if any(each.case.finetune for each in found):
        raise InputError("fine-tuning can't be compared, because its steps differ; choose other cases")
    if len(found) < 2:
        raise InputError(f"two cases or two --sources are required, got only '{found[0].case.name}'")
    return found


def measure(chosen: Sequence[Candidate], settings: Settings) -> list[Difference]:
    """Call all candidates in random order, round after round."""
    if settings.rounds < _FEWEST or settings.calls < 1:
        raise InputError(
            f"rounds must be >= {_FEWEST} and calls >= 1, got {settings.rounds} rounds and {settings.calls} calls"
        )
    deadline = time.monotonic() + settings.seconds
    order, drawn = list(range(len(chosen))), random.Random(settings.seed)
    rounds: list[list[float]] = []
    with ExitStack() as stack:
        started = [stack.enter_context(_started(each, settings.device)) for each in chosen]
        for process in started:
            process.answer()
        with progress("comparison", total=settings.rounds, unit="rounds") as bar:
            while len(rounds) < settings.rounds and (len(rounds) < _FEWEST or time.monotonic() < deadline):
                drawn.shuffle(order)
                times = {index: started[index].call(settings.calls) for index in order}
                rounds.append([times[index] for index in range(len(chosen))])
                bar.advance()
    return differences([str(each) for each in chosen], rounds)


def differences(names: Sequence[str], rounds: Sequence[Sequence[float]]) -> list[Difference]:
    """Compare the columns of rounds, one per name, with the first one."""
    found = []
    for index, name in enumerate(names):
        more = [times[index] - times[0] for times in rounds]
        ratios = [times[index] / times[0] for times in rounds]
        typical = median(times[index] for times in rounds)
        found.append(Difference(name, typical, mean(more), _error(more), mean(ratios), _error(ratios)))
    return found


def _error(values: Sequence[float]) -> float:
    return stdev(values) / sqrt(len(values))


class _Process:
    """A running candidate."""

    def __init__(self, name: str, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self.name, self.process, self.errors = name, process, errors

    def answer(self) -> str:
        """Wait for the next line; the first one says that the candidate is compiled."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            printed = self.errors.read().strip()
            raise InputError(f"{self.name} ended: {printed.splitlines()[-1] if printed else 'it printed nothing'}")
        return line

    def call(self, count: int) -> float:
        """Milliseconds of a call, the mean of as many."""
        assert self.process.stdin is not None
        # A process that has ended has no answer either.
        with suppress(BrokenPipeError):
            print(count, file=self.process.stdin, flush=True)
        return float(self.answer())


@contextmanager
def _started(candidate: Candidate, device: str) -> Iterator[_Process]:
    """Start a candidate's process, and end it at the end of the block."""
    # Without -P, the folder of the file would be the first one for imports.
    command = [sys.executable, "-P", compare_process.__file__, json.dumps(asdict(candidate.case)), device]
    source = candidate.source.resolve() if candidate.source else Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source / "src"), str(source)])}
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)
        try:
            yield _Process(str(candidate), process, errors)
        finally:
            process.kill()
            process.communicate()


def table(found: Sequence[Difference]) -> str:
    """Return a Markdown table."""
    rows = [
        f"| {each.name} | {each.milliseconds:.3f} | {each.difference:+.3f} ± {each.difference_error:.3f} | "
        f"{each.ratio:.4f} ± {each.ratio_error:.4f} |"
        for each in found
    ]
    return "\n".join(["| | median ms | difference to the first | ratio |", "| --- | ---: | ---: | ---: |", *rows])


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description=__doc__)
    parser.add_argument("cases", nargs="+", help="names of cases, or texts that they contain, such as 'base 256×128'")
    parser.add_argument("--sources", nargs="+", type=Path, default=(), help="folders of lightbert's source to compare")
    parser.add_argument("--rounds", type=int, default=Settings.rounds, help="each case is called in each round")
    parser.add_argument("--calls", type=int, default=Settings.calls, help="calls of a case per round")
    parser.add_argument("--seconds", type=float, default=Settings.seconds, help="no round starts after this time")
    given = parser.parse_args(arguments)
    chosen = candidates(given.cases, given.sources)
    if not torch.cuda.is_available():
        raise InputError("times of training steps require a GPU, but PyTorch finds none")
    keep_compiled_code()
    print(table(measure(chosen, Settings(given.rounds, given.calls, given.seconds))))


if __name__ == "__main__":
    run_main(main)
