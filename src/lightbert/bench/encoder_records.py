"""Records of small encoders: their pre-trainings and their scores, kept as JSON next to the page that shows them.

Run folders contain weights and are not kept; a record has what a page or a model card says about a run.
"""

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import write_atomic

TASKS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "rte": "RTE"}
"""The tasks of the mean, with GLUE's names."""


@dataclass(frozen=True)
class Pretraining:
    """A pre-training run, a part that continues another one, or a distillation."""

    name: str
    recipe: str
    command: str
    commit: str
    machine: str
    minutes: float
    tokens: int
    """Tokens of this run, padding included."""
    flops_electra: float
    """Training FLOPs by the rules of ELECTRA's script; 0 for a distillation, which that script doesn't cover."""
    flops_matmul: float
    """Training FLOPs of matrix products and convolutions, a backward pass counted as two forward passes."""
    held_out: dict[str, float]
    after: str = ""
    """The name of the pre-training that this one continues."""
    teacher: str = ""
    """The name of the pre-training of its teacher, if it is a distillation."""
    source: str = ""
    """Where the record is quoted from; "" if it was read from a run folder."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of a task, one per fine-tuning seed."""

    metric: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the seeds."""
        return median(self.values)


@dataclass(frozen=True)
class Scores:
    """The scores of a pre-trained model on the development sets of tasks, fine-tuned with one recipe."""

    name: str
    of: str
    """The name of the pre-training."""
    recipe: str
    commands: tuple[str, ...]
    commit: str
    machine: str
    tasks: dict[str, TaskScores]
    source: str = ""
    """Where the record is quoted from; "" if it was read from run folders."""

    @property
    def mean(self) -> float | None:
        """The mean of the tasks' medians, in points; None if a task is missing."""
        if not TASKS.keys() <= self.tasks.keys():
            return None
        return 100 * fmean(self.tasks[task].median for task in TASKS)


Record = TypeVar("Record", Pretraining, Scores)


@dataclass(frozen=True)
class Records:
    """All records of a page, in the order in which they were added."""

    pretrainings: tuple[Pretraining, ...] = ()
    scores: tuple[Scores, ...] = ()

    def chain(self, name: str) -> list[Pretraining]:
        """A pre-training and all those that it continues, the first one first; the records are checked."""
        by_name = {each.name: each for each in self.pretrainings}
        found: list[Pretraining] = []
        while name:
            if by_name[name] in found:
                raise InputError(f"the pre-training '{name}' continues itself; correct its key 'after'")
            found.insert(0, by_name[name])
            name = by_name[name].after
        return found

    def check(self) -> "Records":
        """Check that all pre-trainings that are named are recorded; return the records."""
        known = {each.name for each in self.pretrainings}
        named = [(each.name, each.of) for each in self.scores]
        named += [(each.name, other) for each in self.pretrainings for other in (each.after, each.teacher) if other]
        for name, pretraining in named:
            if pretraining not in known:
                raise InputError(
                    f"'{name}' names the pre-training '{pretraining}', which is not recorded; record it first"
                )
        for each in self.pretrainings:
            self.chain(each.name)
        return self

    def tokens(self, name: str) -> int:
        """The tokens of a pre-training and of all those that it continues."""
        return sum(each.tokens for each in self.chain(name))

    def is_student(self, name: str) -> bool:
        """Whether a pre-training is a distillation."""
        return any(each.name == name and each.teacher for each in self.pretrainings)

    def find(self, name: str) -> Scores:
        """The scores of this name."""
        found = next((each for each in self.scores if each.name == name), None)
        if found is None:
            names = ", ".join(f"'{each.name}'" for each in self.scores) or "none"
            raise InputError(f"no scores named '{name}' are recorded; recorded: {names}")
        return found

    def add(self, record: Pretraining | Scores) -> "Records":
        """Return the records with one more; it replaces the one of the same name."""
        if isinstance(record, Pretraining):
            return replace(self, pretrainings=_replace(self.pretrainings, record))
        return replace(self, scores=_replace(self.scores, record))

    def with_quoted(self, quoted: "Records") -> "Records":
        """Return the records with quoted ones; a measured record takes precedence over a quoted one of its name."""
        ours, scored = ({each.name for each in kind} for kind in (self.pretrainings, self.scores))
        return Records(
            (*(each for each in quoted.pretrainings if each.name not in ours), *self.pretrainings),
            (*(each for each in quoted.scores if each.name not in scored), *self.scores),
        )


def load(path: Path) -> Records:
    """Read records from a .json or .toml file; no records if there is no file."""
    if not path.exists():
        return Records()
    try:
        text = path.read_text(encoding="utf-8")
        values: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is damaged: {error}; restore it") from error
    try:
        return from_mapping(Records, values)
    except InputError as error:
        raise InputError(f"'{path}': {error}") from None


def save(records: Records, path: Path) -> None:
    """Write records as JSON."""
    write_atomic(path, json.dumps(to_mapping(records), indent=1, ensure_ascii=False) + "\n")


def _replace(records: tuple[Record, ...], new: Record) -> tuple[Record, ...]:
    by_name = {each.name: each for each in records} | {new.name: new}
    return tuple(by_name.values())
