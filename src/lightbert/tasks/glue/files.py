"""GLUE's own files: tab-separated, without quoting, each task a little different from the others."""

from pathlib import Path

from lightbert.errors import InputError
from lightbert.tasks.bad_rows import BadRows
from lightbert.tasks.example import Example
from lightbert.tasks.glue.columns import Columns, example_of, find_columns
from lightbert.tasks.glue.table import TABLE, Row, find


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


def read_split(name: str, split: str, folder: Path, bad_rows: str = "error") -> list[Example]:
    """Read one split of a task; labels are None in a test set that has none."""
    row = TABLE[name]
    names = row.splits[split].files
    path = next((folder / file for file in names if (folder / file).is_file()), folder / names[0])
    if not path.is_file():
        raise InputError(f"there is no file '{path}', which {row.title} needs for its split {split!r}")
    return read_file(path, row, labelled=not split.startswith("test"), bad_rows=bad_rows)


def read_file(path: Path, row: Row, *, labelled: bool, bad_rows: str = "error") -> list[Example]:
    """Read a file; ``labelled`` says that it is of no use without labels.

    Columns are found by the names in the header. Quotation marks are letters like all others: they are not balanced in
    GLUE's files. Empty lines are no rows.
    """
    # Text that is split by Python's own rules would also break at U+2028 and its like, which occur inside of rows.
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    columns, begin = _header(path, lines[0], row)
    if labelled and columns.label is None:
        raise InputError(f"'{path}' has no column {_choice(row.label)}, which is to hold the labels")
    examples: list[Example] = []
    number = 0
    with BadRows(path, bad_rows) as bad:
        for line, content in enumerate(lines[begin:], start=begin + 1):
            content = content.removesuffix(b"\r")
            if not content:
                continue
            try:
                examples.append(example_of(_cells(content), columns, row, number))
            except InputError as error:
                bad.meet(line, str(error))
            number += 1
    if not examples:
        raise InputError(f"'{path}' holds no examples")
    return examples


def _header(path: Path, line: bytes, row: Row) -> tuple[Columns, int]:
    """Where the columns are, and at which line the examples begin."""
    if not line.strip():
        raise InputError(f"'{path}' is empty where its first line should be; copy it again")
    try:
        names = _cells(line.removesuffix(b"\r"))
    except InputError as error:
        raise InputError(f"'{path}', line 1: {error}; copy it again") from None
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


def _cells(line: bytes) -> list[str]:
    try:
        return line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start + 1} ({line[error.start]:#04x}) is not UTF-8") from None
