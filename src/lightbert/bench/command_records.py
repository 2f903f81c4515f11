"""Records of commands that a table runs: which are finished, and at which commits they ran."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from lightbert.bench.source_version import commit
from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import write_atomic


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
