"""The texts of one column of a .csv or .tsv file, for a corpus."""

from collections.abc import Iterator
from pathlib import Path

from lightbert.data.text.table_rows import check_header, check_separator, split_rows
from lightbert.data.text.text_files import Undecodable, lines
from lightbert.errors import InputError, listed


def delimited_texts(
    path: Path, column: str, separator: str, *, quotes: bool, undecodable: Undecodable = "error"
) -> Iterator[tuple[str, int]]:
    """Yield the text of each row, with the bytes of the file read so far.

    quotes: whether fields may be quoted, as in .csv files.
    """
    check_separator(separator)
    position = 0

    def content() -> Iterator[str]:
        nonlocal position
        for line, position in lines(path, undecodable):  # noqa: B007
            yield f"{line}\n"

    header: list[str] = []
    for number, fields in split_rows(path, content(), separator, quotes=quotes):
        if not header:
            header = check_header(path, fields)
            if column not in header:
                raise InputError(
                    f"'{path}' has no column {column!r}, only {listed(header)}; set the column with --text"
                )
        elif isinstance(fields, str):
            raise InputError(f"line {number} of '{path}' {fields}; fix it")
        elif len(fields) != len(header):
            raise InputError(f"line {number} of '{path}' has {len(fields)} fields, but the header has {len(header)}")
        else:
            yield fields[header.index(column)], position
