"""Records to predict, from files and pipes of any size, and the lines that tell what became of them."""

import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.data.text.row_file import BadRowHandler, BadRows, decoding_problem
from lightbert.data.text.table_rows import Row
from lightbert.data.text.tables import FORMATS, Table, table_format
from lightbert.data.text.text_files import BOM, byte_lines
from lightbert.errors import InputError
from lightbert.tasks.predict.inputs import example_of
from lightbert.tasks.predict.predictor import Predictor

TEXT_FORMAT = ".txt"

_TABLES_WITH_HEADERS = (".csv", ".tsv", ".parquet")


class Lines(BadRowHandler):
    """Lines of UTF-8: a JSON object is a record, anything else a text. Empty lines are passed over."""

    def __init__(self, lines: Iterable[bytes], name: str, bad_rows: BadRows = "error") -> None:
        super().__init__(name, bad_rows)
        self._lines = lines

    def __iter__(self) -> Iterator[Row]:
        for number, line in enumerate(self._lines, start=1):
            content = line.removeprefix(BOM) if number == 1 else line
            text = content.decode("utf-8", "surrogateescape").rstrip("\r\n")
            if problem := decoding_problem(text):
                self.reject(number, problem)
            elif text.strip():
                yield number, _record(text)


class Given(BadRowHandler):
    """Records that are there already, such as those of a command line."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        super().__init__("the command line", unit="text")
        self._records = records

    def __iter__(self) -> Iterator[Row]:
        return enumerate(self._records, start=1)


Source = Lines | Given | Table


def open_records(path: str | Path, bad_rows: BadRows = "error", *, separator: str = ",") -> Lines | Table:
    """Open a table, or a .txt file of lines; compressed ones too."""
    if Path(path).is_dir():
        raise InputError(f"'{path}' is a folder; give the path of a file in it")
    suffix = table_format(path)
    if suffix == TEXT_FORMAT:
        return Lines((line for line, _ in byte_lines(Path(path))), f"'{path}'", bad_rows)
    if suffix not in FORMATS:
        known = ", ".join((*FORMATS, TEXT_FORMAT))
        raise InputError(f"cannot tell what '{path}' is by its name; it must end in one of {known}")
    return Table(path, separator=separator, bad_rows=bad_rows)


@dataclass(frozen=True)
class Fields:
    """What records call their texts; a second one that is not named may be there as "text_b" or not."""

    text: str = "text"
    text_b: str = ""

    def missing(self, present: Collection[str], kind: str) -> str:
        """Say which of the fields that a kind of task needs is missing, and the remedy; nothing if none is."""
        if kind == "spans":
            needed = dict.fromkeys(("question", "context"), "rename the one that it is")
        elif kind == "tokens" and "words" in present:
            return ""
        else:
            needed = {self.text: "name the right one with --text"}
            if self.text_b:
                needed[self.text_b] = "name the right one with --text-b"
        field = next((field for field in needed if field not in present), "")
        return field and f"{field!r}, only {', '.join(map(repr, present)) or 'nothing'}; {needed[field]}"


def require_columns(table: Lines | Table, fields: Fields, kind: str) -> None:
    """Refuse a table whose header lacks a column, before the model has read a single row."""
    if isinstance(table, Table) and table.format in _TABLES_WITH_HEADERS:
        missing = fields.missing(table.columns(), kind)
        if missing:
            raise InputError(f"{table.name} has no column {missing}")


def predicted_lines(predictor: Predictor, source: Source, fields: Fields) -> Iterator[str]:
    """Yield a line of JSON for each record in turn: its own fields, and what the model says.

    Nothing is kept of a record once it is answered.
    """
    kind, names = predictor.kind, {"text": fields.text, "text_b": fields.text_b or "text_b"}
    waiting: deque[dict[str, Any]] = deque()

    def examples() -> Iterator[Any]:
        for number, record in source:
            if missing := fields.missing(record, kind.name):
                source.reject(number, f"has no {missing}")
                continue
            try:
                example = example_of(record, kind, names)
            except InputError as error:
                source.reject(number, f"cannot be used: {error}")
            else:
                waiting.append(record)
                yield example

    for prediction in predictor.stream(examples()):
        yield _merged(waiting.popleft(), prediction)


def _merged(record: dict[str, Any], prediction: dict[str, Any]) -> str:
    """The prediction's names are what readers rely on, so that a field of the record gives way: "input_label"."""
    kept = {f"input_{field}" if field in prediction else field: value for field, value in record.items()}
    # Tables have values, such as dates, that JSON has not.
    return json.dumps({**_finite(kept), **prediction}, ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    """The value with null where a table has a number that is none: "NaN" is no JSON."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _record(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return {"text": text}
        if isinstance(found, dict):
            return found
    return {"text": text}
