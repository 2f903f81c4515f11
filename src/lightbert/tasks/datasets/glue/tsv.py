"""GLUE's original files: tab-separated without quoting, with small differences between tasks."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from lightbert.data.text_files import BadRows, RowFile, decoding_problem, text_lines
from lightbert.errors import InputError
from lightbert.tasks.datasets.glue.columns import Columns, example_of, find_columns
from lightbert.tasks.datasets.glue.table import TABLE, Row, find
from lightbert.tasks.example import Example, Examples


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


def has_split(name: str, split: str, folder: Path) -> bool:
    """Whether the file of a split exists."""
    return _path(name, split, folder).is_file()


def read_split(name: str, split: str, folder: Path, bad_rows: BadRows = "error") -> list[Example]:
    """Read one split of a task; labels are None in an unlabelled test set."""
    path, row = _path(name, split, folder), TABLE[name]
    if not path.is_file():
        raise InputError(f"'{path}' not found; the split {split!r} of {row.title} requires it")
    return read_file(path, row, labelled=not split.startswith("test"), bad_rows=bad_rows)


def _path(name: str, split: str, folder: Path) -> Path:
    paths = [folder / file for file in TABLE[name].splits[split].files]
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
                examples.append(example_of(content.split("\t"), columns, row, number))
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
