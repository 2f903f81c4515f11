"""Sources of text as streams of documents: files, folders, globs, Hugging Face datasets and docstrings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightbert.data import docstrings, tables
from lightbert.data.tables import Table, TableOptions
from lightbert.data.text_files import COMPRESSIONS, Undecodable, lines
from lightbert.errors import InputError, required


class _Documents(Table):
    """A table of documents, whose bad rows can't be skipped."""

    is_corpus = True
    skip_remedy = ""


def table_texts(path: Path, reading: "ReadOptions") -> Iterator[tuple[str, int]]:
    """Yield the text of each row, with the bytes of the file read so far."""
    options = TableOptions(reading.separator, reading.encoding, undecodable=reading.undecodable)
    table = _Documents(path, {"data.text": reading.text}, options)
    for number, row in table:
        if not isinstance(row[reading.text], str):
            table.reject(number, f"has no text in {reading.text!r}; choose another column with --text")
        text: str = row[reading.text]
        yield text.replace("\r\n", "\n") if table.format == ".csv" else text, table.position


def rows(specification: str, column: str) -> Iterator[tuple[str, int]]:
    """Yield the text `column` of `hf:NAME[:CONFIG][:SPLIT]`, with 0 for the unknown number of bytes read so far.

    The default split is "train"; CONFIG may be empty.
    """
    with required(f"'{specification}' requires datasets", "lightbert[hf]"):
        from datasets import load_dataset
    _, *parts = specification.split(":")
    if not parts[0] or len(parts) > 3:
        raise InputError(f"cannot read '{specification}'; write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    name, config, split = (*parts, "", "")[:3]
    try:
        dataset = load_dataset(name, config or None, split=split or "train", streaming=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot open '{specification}': {_first_line(error)}") from error
    try:
        for row in dataset:
            if not isinstance(row.get(column), str):
                names = ", ".join(row)
                raise InputError(f"'{specification}' has no text column {column!r}; choose one of {names} with --text")
            yield row[column], 0
    except OSError as error:
        raise InputError(f"reading '{specification}' failed: {_first_line(error)}; run the command again") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


FORMATS = (tables.TEXT_FORMAT, *tables.FORMATS)

# Other tables of a folder may be about the texts rather than contain them; they are read if they are named.
_FORMATS_IN_FOLDERS = (".txt", ".jsonl", ".ndjson", ".parquet")

# Longer documents are split, so that memory stays bounded for any input.
_MAX_DOCUMENT_CHARACTERS = 1 << 24


@dataclass(frozen=True)
class Source:
    """One source: a file, a Hugging Face dataset or the docstrings. `size` is in bytes on disk, 0 = unknown."""

    name: str
    kind: Literal["file", "hf", "docstrings"]
    size: int = 0


@dataclass(frozen=True)
class ReadOptions:
    """How sources are split into documents.

    text: the field of JSON records, the column of other tables and of Hugging Face datasets.
    separator: the field separator of .csv files.
    documents: what a document of a .txt file is: the text between blank lines, the whole file, or a line.
    undecodable: whether bytes that are not UTF-8 are an error or are replaced by U+FFFD.
    encoding: of files but Parquet and Excel.
    """

    text: str = "text"
    separator: str = ","
    documents: Literal["blank", "file", "line"] = "blank"
    undecodable: Undecodable = "error"
    encoding: str = "utf-8"


def find(specifications: Sequence[str]) -> list[Source]:
    """Expand folders and globs, in the given order and sorted within each; raise an error if one has no files."""
    if not specifications:
        raise InputError("sources must not be empty; give files, folders, globs, hf:NAME or docstrings")
    return [source for specification in specifications for source in _expand(specification)]


def documents(source: Source, reading: ReadOptions, workers: int = 1) -> Iterator[tuple[str, int]]:
    """Yield each document, its lines joined by line feeds, with the bytes of the source read so far."""
    match source.kind:
        case "docstrings":
            return docstrings.documents(source.name, workers)
        case "hf":
            return rows(source.name, reading.text)
    path = Path(source.name)
    match _format(path):
        case ".txt":
            return _paragraphs(lines(path, reading.undecodable, reading.encoding), reading.documents)
        case _:
            return table_texts(path, reading)


def _expand(specification: str) -> list[Source]:
    if not specification:
        # An empty path is the current folder.
        raise InputError("a source must not be empty; give a file, a folder (. is the current one) or a glob")
    if specification.partition(":")[0] == "docstrings":
        return [Source(specification, "docstrings", docstrings.size(specification))]
    if specification.startswith("hf:"):
        return [Source(specification, "hf")]
    path = Path(specification)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
        visible = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        paths = [file for file in visible if _format(file) in _FORMATS_IN_FOLDERS]
        if not paths:
            known = ", ".join(_FORMATS_IN_FOLDERS)
            raise InputError(
                f"the folder '{specification}' must contain {known} files, but has none; name other tables with a "
                f"quoted glob, such as '{path / '*.csv'}'"
            )
    elif path.exists():
        paths = [path]
    elif any(character in specification for character in "*?["):
        matches = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
        paths = [file for file in sorted(matches) if file.is_file()]
        if not paths:
            raise InputError(f"no file matches '{specification}'; put the pattern in quotes and check the folder")
    else:
        raise InputError(f"'{specification}' not found; give a file, a folder, a quoted glob, hf:NAME or docstrings")
    for file in paths:
        if not file.is_file():
            raise InputError(f"'{file}' must be a regular file, because sources are read more than once; save it first")
        if not _format(file):
            known = f"{', '.join(FORMATS)}, optionally followed by {', '.join(COMPRESSIONS)}"
            raise InputError(f"'{file}' must have one of the suffixes {known}")
    return [Source(str(file), "file", file.stat().st_size) for file in paths]


def _format(path: Path) -> str | None:
    suffix = tables.table_format(path)
    # Parquet and Excel files are compressed internally.
    compressed = path.suffix.lower() in COMPRESSIONS and suffix in (".parquet", ".xlsx")
    return suffix if suffix in FORMATS and not compressed else None


def _paragraphs(numbered: Iterable[tuple[str, int]], unit: str) -> Iterator[tuple[str, int]]:
    pending: list[str] = []
    length = position = 0
    for line, position in numbered:
        blank = not line or line.isspace()
        if not blank:
            pending.append(line)
            length += len(line)
        if pending and (unit == "line" or (unit == "blank" and blank) or length >= _MAX_DOCUMENT_CHARACTERS):
            yield "\n".join(pending), position
            pending, length = [], 0
    if pending:
        yield "\n".join(pending), position
