"""GLUE: nine tasks on English sentences and sentence pairs, and the diagnostic set AX (Wang et al. 2019)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from lightbert.data.text_files import BadRows, RowFile, decoding_problem, text_lines
from lightbert.errors import InputError, required, unknown
from lightbert.tasks.example import Example, Examples
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.kind import Kind, Task
from lightbert.tasks.kinds.regress import Regress

# The name of each split on the Hugging Face Hub, and its file names, of which the first that exists is read.
_SPLITS = {"train": ("train", "train.tsv"), "dev": ("validation", "dev.tsv"), "test": ("test", "test.tsv")}
_MNLI_SPLITS = {
    "train": ("train", "train.tsv"),
    "dev": ("validation_matched", "dev_matched.tsv"),
    "dev_mismatched": ("validation_mismatched", "dev_mismatched.tsv"),
    "test": ("test_matched", "test_matched.tsv"),
    "test_mismatched": ("test_mismatched", "test_mismatched.tsv"),
}
_AX_SPLITS = {"test": ("test", "diagnostic.tsv", "AX.tsv", "test.tsv", "diagnostic-full.tsv")}

_BINARY = {"0": "not_entailment", "1": "entailment"}
_TWO_WAY = {name: name for name in ("entailment", "not_entailment")}
_THREE_WAY = {name: name for name in ("entailment", "neutral", "contradiction")}


@dataclass(frozen=True)
class Row:
    """One task. Columns have several names: those of GLUE, and those of other releases of the same files."""

    folders: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...] = ()
    """Empty for single-sentence tasks."""
    label: tuple[str, ...] = ("label",)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Label in the files and on the leaderboard -> our name for it, in the order of the Hub's label ids; empty for
    STS-B, whose label is a number."""
    metric: str = "accuracy"
    symmetric: bool = False
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _SPLITS)
    unnamed: tuple[str, ...] = ()
    """The columns of a file without a header."""

    @property
    def title(self) -> str:
        """The task's name as GLUE writes it."""
        return self.folders[0]


TABLE: Mapping[str, Row] = {
    "cola": Row(
        ("CoLA",),
        ("sentence",),
        labels={"0": "unacceptable", "1": "acceptable"},
        metric="mcc",
        unnamed=("source", "label", "star", "sentence"),
    ),
    "sst2": Row(("SST-2",), ("sentence",), labels={"0": "negative", "1": "positive"}),
    "mrpc": Row(
        ("MRPC",),
        ("#1 string", "sentence1"),
        ("#2 string", "sentence2"),
        label=("quality", "label"),
        labels={"0": "not_equivalent", "1": "equivalent"},
        symmetric=True,
    ),
    "stsb": Row(
        ("STS-B",), ("sentence1",), ("sentence2",), label=("score", "label"), metric="spearman", symmetric=True
    ),
    "qqp": Row(
        ("QQP",),
        ("question1",),
        ("question2",),
        label=("is_duplicate", "label"),
        labels={"0": "not_duplicate", "1": "duplicate"},
    ),
    "mnli": Row(
        ("MNLI",),
        ("sentence1", "premise"),
        ("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        labels=_THREE_WAY,
        splits=_MNLI_SPLITS,
    ),
    "qnli": Row(("QNLI",), ("question",), ("sentence",), labels=_TWO_WAY),
    "rte": Row(("RTE",), ("sentence1",), ("sentence2",), labels=_TWO_WAY),
    "wnli": Row(("WNLI",), ("sentence1",), ("sentence2",), labels=_BINARY),
    "ax": Row(
        ("AX", "diagnostic"),
        ("sentence1", "premise"),
        ("sentence2", "hypothesis"),
        labels=_THREE_WAY,
        metric="mcc",
        splits=_AX_SPLITS,
    ),
}

LOW, HIGH = 0.0, 5.0
"""The range of STS-B scores."""

_ALIASES = {"sst": "sst2", "sts": "stsb", "diagnostic": "ax", "diagnostics": "ax"}


def find(spelling: str) -> str | None:
    """The key of a task in any of the usual spellings (SST-2, sst_2, sst2); None if GLUE has no such task."""
    plain = "".join(letter for letter in spelling.lower() if letter.isalnum())
    name = _ALIASES.get(plain, plain)
    return name if name in TABLE else None


_IDS = ("index", "id", "idx")


@dataclass(frozen=True)
class Columns:
    """The indices of the columns with the texts, the label and the id; None if there is no such column."""

    first: int
    second: int | None
    label: int | None
    id: int | None
    count: int


def find_columns(names: Sequence[str], row: Row) -> Columns | None:
    """Find the columns of a task in a header, ignoring case; None if a text column is missing."""
    indices = {name.strip().lower(): index for index, name in reversed(list(enumerate(names)))}

    def index_of(candidates: Sequence[str]) -> int | None:
        return next((indices[name] for name in candidates if name in indices), None)

    first, second = index_of(row.first), index_of(row.second)
    if first is None or (row.second and second is None):
        return None
    return Columns(first, second, index_of(row.label), index_of(_IDS), len(names))


def example_of(
    cells: Sequence[Any], columns: Columns, row: Row, number: int, read_label: Callable[[Any, Row], Any]
) -> Example:
    """Convert a row to an example; ``number`` is the id if there is no id column.

    The message of an error continues a sentence that begins with "line 7 of 'dev.tsv'".
    """
    if len(cells) != columns.count:
        raise InputError(f"must have {columns.count} columns, has {len(cells)}")
    return Example(
        text=cells[columns.first],
        text_b=None if columns.second is None else cells[columns.second],
        label=None if columns.label is None else read_label(cells[columns.label], row),
        id=str(number if columns.id is None else cells[columns.id]),
    )


def _label(cell: str, row: Row) -> str | float:
    if row.labels:
        if cell not in row.labels:
            raise InputError(f"has the label {cell!r}, which must be one of {', '.join(row.labels)}")
        return row.labels[cell]
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not LOW <= score <= HIGH:
        raise InputError(f"has the score {cell!r}, which must be a number in [{LOW:g}, {HIGH:g}]")
    return score


def find_folder(name: str, data: str | Path) -> Path:
    """The folder of a task: a subfolder of ``data`` with the name of the task, or ``data`` itself."""
    data, row = Path(data), TABLE[name]
    if not data.is_dir():
        raise InputError(f"folder '{data}' not found; give the folder of {row.title}, or its parent folder")
    inside = [entry for entry in sorted(data.iterdir()) if entry.is_dir() and find(entry.name) == name]
    if inside:
        return inside[0]
    other = find(data.resolve().name)
    if other not in (None, name):
        raise InputError(
            f"data must be the folder of {row.title} or its parent, got '{data}', the folder of {TABLE[other].title}"
        )
    return data


def read_files(name: str, split: str, folder: Path, bad_rows: BadRows = "error") -> list[Example]:
    """Read one split of a task; labels are None in an unlabelled test set."""
    path, row = _path(name, split, folder), TABLE[name]
    if not path.is_file():
        raise InputError(f"'{path}' not found; the split {split!r} of {row.title} requires it")
    return read_file(path, row, labelled=not split.startswith("test"), bad_rows=bad_rows)


def _path(name: str, split: str, folder: Path) -> Path:
    paths = [folder / file for file in TABLE[name].splits[split][1:]]
    return next((path for path in paths if path.is_file()), paths[0])


def read_file(path: Path, row: Row, *, labelled: bool, bad_rows: BadRows = "error") -> Examples[Example]:
    """Read a file; with ``labelled``, a missing label column is an error.

    Columns are found by the names in the header. Quotes are not special, because they are not balanced in GLUE's files.
    Empty lines are ignored.
    """
    columns, begin = _header(path, row)
    if labelled and columns.label is None:
        raise InputError(f"'{path}' must have a label column, {_choice(row.label)}")
    examples: list[Example] = []
    with RowFile(path, bad_rows) as file:
        for number, (line, content) in enumerate(islice(_rows(path), begin, None)):
            if problem := decoding_problem(content):
                file.reject(line, problem)
                continue
            try:
                examples.append(example_of(content.split("\t"), columns, row, number, _label))
            except InputError as error:
                file.reject(line, str(error))
        file.require_some(len(examples))
    return Examples(examples, file.skipped)


def _rows(path: Path) -> Iterator[tuple[int, str]]:
    for line, text in enumerate(text_lines(path), start=1):
        if content := text.rstrip("\r\n"):
            yield line, content


def _header(path: Path, row: Row) -> tuple[Columns, int]:
    """Find the columns, and the number of header rows: 1 or 0."""
    _, content = next(_rows(path), (0, ""))
    if problem := "is empty" if not content else decoding_problem(content):
        raise InputError(f"the first line of '{path}' {problem}; copy the file again")
    names = content.split("\t")
    columns = find_columns(names, row)
    if columns is not None:
        return columns, 1
    columns = find_columns(row.unnamed, row)
    if columns is not None and len(names) == columns.count:
        return columns, 0
    wanted = " and ".join(_choice(names) for names in (row.first, row.second) if names)
    raise InputError(f"'{path}' must have a column {wanted}, but its first line is {', '.join(names)[:200]!r}")


def _choice(names: tuple[str, ...]) -> str:
    return " or ".join(repr(name) for name in names)


_REPOSITORY = "nyu-mll/glue"

# The label of unlabelled examples in the test sets of the Hub.
_UNKNOWN = -1


def read_hub(name: str, split: str) -> list[Example]:
    """Download one split of a task, or read it from the cache of datasets; label ids become label names."""
    row = TABLE[name]
    records = _load(name, row.splits[split][0])
    columns = find_columns(records.column_names, row)
    if columns is None or columns.label is None:
        names = ", ".join(records.column_names)
        raise InputError(f"{name} of {_REPOSITORY} must have the columns of GLUE, has {names}")
    return [
        example_of(list(record.values()), columns, row, number, _hub_label) for number, record in enumerate(records)
    ]


def _load(name: str, split: str) -> Any:
    with required(f"downloading {name} requires datasets", "lightbert[hf]", ", or give data=FOLDER"):
        from datasets import load_dataset
    try:
        return load_dataset(_REPOSITORY, name, split=split)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"can't download {name} from {_REPOSITORY} ({reason}); give the folder of the GLUE files: data=FOLDER"
        ) from error


def _hub_label(value: int | float, row: Row) -> str | float | None:
    labels = tuple(row.labels.values())
    if value == _UNKNOWN:
        return None
    if not labels:
        return float(value)
    if value not in range(len(labels)):
        raise InputError(f"labels of {_REPOSITORY} must be in [0, {len(labels) - 1}], got {value}")
    return labels[int(value)]


HUB = ("", "hub")
"""Values of ``data`` that select the Hugging Face Hub."""

# A missing file is an error for these splits; the mismatched splits of MNLI are optional.
_REQUIRED = ("train", "dev", "test")


def open_glue(name: str, data: str = "", *, bad_rows: BadRows = "error") -> Task:
    """Open a task by its name in any of the usual spellings.

    The scores of STS-B are scaled to [0, 1] (ELECTRA, ConvBERT), unless the kind is replaced by an unscaled one.

    data: the folder of the task, its parent folder, or "hub".
    bad_rows: "error" or "skip", for rows with a wrong number of columns or an invalid label.
    """
    if (found := find(name)) is None:
        raise unknown("GLUE task", name, TABLE)
    name, row = found, TABLE[found]
    kind: Kind[Any] = Classify(tuple(row.labels.values())) if row.labels else Regress(LOW, HIGH)
    read: Callable[[str], list[Example]]
    if data in HUB:
        names = list(row.splits)
        read = partial(read_hub, name)
    else:
        folder = find_folder(name, data)
        names = [split for split in row.splits if split in _REQUIRED or _path(name, split, folder).is_file()]
        read = partial(read_files, name, folder=folder, bad_rows=bad_rows)
    return Task(name, kind, {split: partial(read, split) for split in names}, row.metric, row.symmetric)
