"""Records of files and pipes of any size, merged with their predictions or encoded as vectors."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightbert.config import without_nan
from lightbert.data.tables import WITH_HEADER, RecordList, StandardInput, Table, TableOptions
from lightbert.errors import InputError, listed
from lightbert.tasks.example import Example
from lightbert.tasks.predict.inputs import Fields, example_of
from lightbert.tasks.predict.output_files import VectorType, vector_file
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.vectors import Embedder

Source = RecordList | Table


def open_records(path: str, fields: Fields, options: TableOptions) -> Table:
    """Open a table or a .txt file of lines, plain or compressed, or "-", standard input."""
    return StandardInput(fields.text, options) if path == "-" else Table(path, options=options, lines=True)


def table_options(task: Mapping[str, Any], **given: Any) -> TableOptions:
    """How to read a table: as the one that a model was fine-tuned on, by its `task`, except for what is given."""
    stored = {name: value for name, value in task.get("data", {}).items() if name in ("separator", "header")}
    return TableOptions(**stored | {name: value for name, value in given.items() if value is not None})


def check_columns(table: Table, fields: Fields, kind: str, keep: Sequence[str] = ()) -> None:
    """Check that a table has the required columns and those to keep, before any row is read."""
    if table.format in WITH_HEADER:
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


def embed_file(
    embedder: Embedder,
    source: Table,
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

    with source, vector_file(out, embedder.width, keep, source.types(), dtype) as file:
        for vectors in embedder.stream(examples()):
            rows = [kept.popleft() for _ in vectors]
            file.write(vectors, {name: [row[index] for row in rows] for index, name in enumerate(keep)})
            count += len(vectors)
            advance(len(vectors))
    return count


def text_records(source: Table, fields: Fields, keep: Sequence[str] = ()) -> Iterator[tuple[dict[str, Any], Example]]:
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
