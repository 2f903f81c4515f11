"""Open SQuAD as a task from a folder or a file."""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from lightbert.data.text_files import COMPRESSIONS
from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.squad.reading import read
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Examples, Question
from lightbert.tasks.kinds.spans.kind import RELEASED_THRESHOLDS, Spans

Version = Literal["1.1", "2.0"]

_NAMES = {"1.1": "squad", "2.0": "squad2"}
_ENDINGS = tuple(f".json{compression}" for compression in ("", *COMPRESSIONS))


def squad_task(data: str | Path, *, version: Version, bad_rows: str = "error") -> Task:
    """Open a folder with train-v1.1.json and dev-v1.1.json (or -v2.0), or a single file as the dev split.

    Files may be compressed. Other names work if they contain the split and the version, such as
    cs224n-dev-v2.0.json.xz. For 2.0 the null threshold is the released one until it is tuned on dev.
    """
    if version not in _NAMES:
        raise unknown("version of SQuAD", version, _NAMES)
    path = Path(data)
    if path.is_dir():
        files = {split: found for split in ("train", "dev", "test") if (found := _file(path, split, version))}
    elif path.is_file():
        files = {"dev": path}
    else:
        raise InputError(f"'{data}' not found; give a folder with dev-v{version}.json, or such a file")
    if not files:
        raise InputError(f"folder '{data}' must contain a file such as train-v{version}.json or dev-v{version}.json")
    kind = Spans() if version == "1.1" else Spans(null_threshold=RELEASED_THRESHOLDS["span"])
    splits: dict[str, Callable[[], list[Question]]] = {
        split: partial(_questions, file, version, bad_rows) for split, file in files.items()
    }
    return Task(_NAMES[version], kind, splits, metric="f1")


def _file(folder: Path, split: str, version: str) -> Path | None:
    """The file of a split: with the official name, or the only one whose name contains the split and the version."""
    for ending in _ENDINGS:
        if (official := folder / f"{split}-v{version}{ending}").is_file():
            return official
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.name.endswith(_ENDINGS) and f"v{version}" in path.name and split in re.findall("[a-z]+", path.name)
    ]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(
            f"folder '{folder}' must contain one file for {split}, got {names}; rename one to {split}-v{version}.json"
        )
    return found[0] if found else None


def _questions(path: Path, version: Version, bad_rows: str) -> Examples[Question]:
    questions, skipped = read(path, unanswerable=version == "2.0", bad_rows=bad_rows)
    if skipped:
        total = len(questions) + len(skipped)
        print(f"skipped {len(skipped):,} of {total:,} questions of '{path}'; the first: {skipped[0]}", file=sys.stderr)
    return Examples(questions, len(skipped))
