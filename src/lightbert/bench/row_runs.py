"""The runs of a row of a table: which are finished, and what is missing."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from lightbert.bench import command_records
from lightbert.train.model_card import publish


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
        return command_records.is_finished(self.record, self.command)


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
