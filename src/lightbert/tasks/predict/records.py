"""Records of files and pipes of any size, merged with their predictions or encoded as vectors."""

import itertools
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightbert.config import without_nan
from lightbert.data.tables import FORMATS, Row, Table, check_header, split_rows, table_format
from lightbert.data.text_files import (
    BOM,
    MAX_LINE_BYTES,
    BadRowHandler,
    BadRows,
    RowFile,
    bounded_file_lines,
    decoding_problem,
    record_problem,
)
from lightbert.errors import InputError, listed
from lightbert.tasks.example import Example
from lightbert.tasks.predict.inputs import Fields, example_of
from lightbert.tasks.predict.output_files import VectorType, vector_file
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.vectors import Embedder

TEXT_FORMAT = ".txt"

_TABLES_WITH_HEADERS = (".csv", ".tsv", ".parquet")


class Lines(BadRowHandler):
    """Lines of UTF-8: JSON lines if the first one is a JSON object, else texts. Empty lines are skipped.

    A line among texts that is a JSON object is a record; a line among JSON lines that is not one is a bad row.
    lines: None is a line that is too long.
    """

    def __init__(self, lines: Iterable[bytes | None], name: str, bad_rows: BadRows = "error") -> None:
        super().__init__(name, bad_rows)
        self._lines = lines

    def __iter__(self) -> Iterator[Row]:
        objects_only: bool | None = None
        for number, line in enumerate(self._lines, start=1):
            if line is None:
                self.reject(number, f"has more than {MAX_LINE_BYTES >> 20} MiB")
                continue
            content = line.removeprefix(BOM) if number == 1 else line
            text = content.decode("utf-8", "surrogateescape").rstrip("\r\n")
            if problem := decoding_problem(text):
                self.reject(number, problem)
            elif text.strip():
                record = _json_object(text)
                if objects_only is None:
                    objects_only = record is not None
                if record is None and objects_only:
                    self.reject(number, "must be a JSON object, like the first line")
                elif record is None:
                    yield number, {"text": text}
                elif problem := record_problem(record, text):
                    self.reject(number, problem)
                else:
                    yield number, record


class StandardInput(Lines):
    """Lines of standard input, or rows of CSV if the first line has the column of the text among others."""

    def __init__(self, lines: Iterator[bytes | None], fields: Fields, separator: str, bad_rows: BadRows) -> None:
        super().__init__(lines, "standard input", bad_rows)
        self._fields, self._separator = fields, separator

    def __iter__(self) -> Iterator[Row]:
        lines = iter(self._lines)
        first = next(lines, b"")
        self._lines = itertools.chain([] if first == b"" else [first], lines)
        header = (first or b"").removeprefix(BOM).decode("utf-8", "replace").strip()
        columns = [name.strip().strip('"') for name in header.split(self._separator)]
        is_csv = len(columns) > 1 and any(name in columns for name in self._fields.text)
        return self._rows() if is_csv else super().__iter__()

    def _rows(self) -> Iterator[Row]:
        path, header = Path("standard input"), list[str]()
        texts = ((line or b"").removeprefix(BOM).decode("utf-8", "surrogateescape") for line in self._lines)
        for number, cells in split_rows(path, texts, self._separator, quotes=True):
            if not header:
                header = check_header(path, cells)
            elif isinstance(cells, str):
                self.reject(number, cells)
            elif problem := decoding_problem("".join(cells)):
                self.reject(number, problem)
            elif len(cells) != len(header):
                self.reject(number, f"has {len(cells)} fields, but the header has {len(header)}")
            else:
                yield number, dict(zip(header, cells, strict=True))


class RecordList(BadRowHandler):
    """Records in memory, such as those of the command line."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        super().__init__("the command line", unit="text")
        self._records = records

    def __iter__(self) -> Iterator[Row]:
        return enumerate(self._records, start=1)


Source = Lines | StandardInput | RecordList | Table


def open_records(path: str | Path, bad_rows: BadRows = "error", *, separator: str = ",") -> Lines | Table:
    """Open a table or a .txt file of lines, plain or compressed."""
    if Path(path).is_dir():
        raise InputError(f"'{path}' is a folder; give the path of a file in it")
    suffix = table_format(path)
    if suffix == TEXT_FORMAT:
        file = RowFile(path, bad_rows)
        return Lines(bounded_file_lines(file.path), file.name, bad_rows)
    if suffix not in FORMATS:
        known = ", ".join((*FORMATS, TEXT_FORMAT))
        raise InputError(f"'{path}' must end in one of {known}")
    return Table(path, separator=separator, bad_rows=bad_rows)


def check_columns(table: Lines | Table, fields: Fields, kind: str, keep: Sequence[str] = ()) -> None:
    """Check that a table has the required columns and those to keep, before any row is read."""
    if isinstance(table, Table) and table.format in _TABLES_WITH_HEADERS:
        columns = table.columns()
        missing = fields.missing(columns, kind) or missing_field(columns, keep)
        if missing:
            raise InputError(f"{table.name} has no column {missing}")


def missing_field(present: Collection[str], keep: Sequence[str]) -> str:
    """Describe the first field of ``--keep`` that is missing, and the remedy; "" if none is missing."""
    absent = next((name for name in keep if name not in present), "")
    return absent and f"{absent!r}, only {listed(map(repr, present))}; leave it out of --keep"


def predicted_records(predictor: Predictor, source: Source, fields: Fields) -> Iterator[dict[str, Any]]:
    """Yield the fields of each record with its prediction, in order.

    Memory is bounded: only the records of the current chunk are kept.
    """
    kind = predictor.kind
    pending: deque[dict[str, Any]] = deque()

    def examples() -> Iterator[Any]:
        for number, record in source:
            if missing := fields.missing(record, kind.name):
                source.reject(number, f"has no {missing}")
                continue
            try:
                example = example_of(record, kind, fields.names(record))
            except InputError as error:
                source.reject(number, f"is invalid: {error}")
            else:
                pending.append(record)
                yield example

    for prediction in predictor.stream(examples()):
        yield merge(pending.popleft(), prediction)


def keep_top(record: dict[str, Any], count: int) -> dict[str, Any]:
    """Keep the most probable labels of a prediction, and six digits of their probabilities."""
    result = dict(record)
    if isinstance(probabilities := record.get("probabilities"), dict):
        best = sorted(probabilities, key=lambda label: -probabilities[label])[:count]
        result["probabilities"] = {label: round(probabilities[label], 6) for label in best}
    if isinstance(probability := record.get("probability"), float):
        result["probability"] = round(probability, 6)
    return result


def merge(record: dict[str, Any], prediction: dict[str, Any]) -> dict[str, Any]:
    """Merge a record and its prediction; fields of the record with the same name get the prefix "input_".

    The name of a column, such as probabilities.good, is also that of a field: tables have one column for it.
    """
    taken = {*prediction, *(f"{name}.{key}" for name, value in prediction.items() for key in _keys(value))}
    renamed = {_free_name(field, record, taken): value for field, value in record.items()}
    return {**without_nan(renamed), **prediction}


def _keys(value: Any) -> Iterable[str]:
    return value if isinstance(value, dict) else ()


def _free_name(field: str, record: dict[str, Any], taken: set[str]) -> str:
    name = field
    while name in taken or (name != field and name in record):
        name = f"input_{name}"
    return name


def _json_object(text: str) -> dict[str, Any] | None:
    """Parse a line; None if it is not a JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def embed_file(
    embedder: Embedder,
    source: Lines | Table,
    out: Path,
    *,
    fields: Fields,
    keep: Sequence[str] = (),
    dtype: VectorType = "float32",
    advance: Callable[[int], None] = lambda count: None,
) -> int:
    """Write one vector per record to a .npy or .parquet file, in order, and return their number.

    keep: the fields of the records that a .parquet file contains next to the vectors.
    advance: called with the number of vectors of each chunk.
    """
    kept: deque[list[Any]] = deque()
    count = 0

    def examples() -> Iterator[Example]:
        for record, example in text_records(source, fields, keep):
            kept.append([record[name] for name in keep])
            yield example

    types = source.types() if isinstance(source, Table) else {}
    with source, vector_file(out, embedder.width, keep, types, dtype) as file:
        for vectors in embedder.stream(examples()):
            rows = [kept.popleft() for _ in vectors]
            file.write(vectors, {name: [row[index] for row in rows] for index, name in enumerate(keep)})
            count += len(vectors)
            advance(len(vectors))
    return count


def text_records(
    source: Lines | Table, fields: Fields, keep: Sequence[str] = ()
) -> Iterator[tuple[dict[str, Any], Example]]:
    """Yield each record with its text or pair of texts; records without them, or without a field of `keep`, are bad."""
    check_columns(source, fields, "", keep)
    for number, record in source:
        if problem := _problem(record, fields, keep):
            source.reject(number, problem)
        else:
            names = fields.names(record)
            yield record, Example(record[names["text"]], record[names["text_b"]] if names["text_b"] else None)


def _problem(record: dict[str, Any], fields: Fields, keep: Sequence[str]) -> str:
    """What is wrong with a record, or an empty string."""
    if missing := fields.missing(record, ""):
        return f"has no {missing}"
    names = fields.names(record)
    optional = () if fields.pairs else (None,)
    for name, others in ((names["text"], ()), (names["text_b"], optional)):
        if name and not isinstance(record[name], str) and record[name] not in others:
            return f"must have a text in {name!r}, got {record[name]!r}"
    absent = missing_field(record, keep)
    return absent and f"has no {absent}"
