"""GLUE's own files: tab-separated, without quoting, each task a little different from the others."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from lightbert.data.text.row_file import BadRows, RowFile, decoding_problem, text_lines
from lightbert.errors import InputError
from lightbert.tasks.datasets.glue.columns import Columns, example_of, find_columns
from lightbert.tasks.datasets.glue.table import TABLE, Row, find
from lightbert.tasks.example import Example


def find_folder(name: str, data: str | Path) -> Path:
    """The folder of a task: ``data`` itself, or one in it that is called like the task."""
    data, row = Path(data), TABLE[name]
    if not data.is_dir():
        raise InputError(f"there is no folder '{data}'; give {row.title}'s folder, or the one with all of GLUE in it")
    inside = [entry for entry in sorted(data.iterdir()) if entry.is_dir() and find(entry.name) == name]
    if inside:
        return inside[0]
    other = find(data.resolve().name)
    if other not in (None, name):
        raise InputError(f"'{data}' is the folder of {TABLE[other].title}; give that of {row.title}, or the one above")
    return data


def has_split(name: str, split: str, folder: Path) -> bool:
    """Whether the file of a split is there."""
    return _path(name, split, folder).is_file()


def read_split(name: str, split: str, folder: Path, bad_rows: BadRows = "error") -> list[Example]:
    """Read one split of a task; labels are None in a test set that has none."""
    path, row = _path(name, split, folder), TABLE[name]
    if not path.is_file():
        raise InputError(f"there is no file '{path}', which {row.title} needs for its split {split!r}")
    return read_file(path, row, labelled=not split.startswith("test"), bad_rows=bad_rows)


def _path(name: str, split: str, folder: Path) -> Path:
    paths = [folder / file for file in TABLE[name].splits[split].files]
    return next((path for path in paths if path.is_file()), paths[0])


def read_file(path: Path, row: Row, *, labelled: bool, bad_rows: BadRows = "error") -> list[Example]:
    """Read a file; ``labelled`` says that it is of no use without labels.

    Columns are found by the names in the header. Quotation marks are letters like all others: they are not balanced in
    GLUE's files. Empty lines are no rows.
    """
    columns, begin = _header(path, row)
    if labelled and columns.label is None:
        raise InputError(f"'{path}' has no column {_choice(row.label)}, which is to hold the labels")
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
    return examples


def _rows(path: Path) -> Iterator[tuple[int, str]]:
    for line, text in enumerate(text_lines(path), start=1):
        if content := text.rstrip("\r\n"):
            yield line, content


def _header(path: Path, row: Row) -> tuple[Columns, int]:
    """Where the columns are, and how many rows are header: 1 or 0."""
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
    raise InputError(f"'{path}' has no column {wanted}; its first line is {', '.join(names)[:200]!r}")


def _choice(names: tuple[str, ...]) -> str:
    return " or ".join(repr(name) for name in names)
