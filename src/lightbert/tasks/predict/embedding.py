"""Encode the texts of a file or a pipe as vectors and write them, in bounded memory."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightbert.data.tables import Table
from lightbert.tasks.example import Example
from lightbert.tasks.predict.fields import Fields
from lightbert.tasks.predict.records import Lines, check_columns, missing_field
from lightbert.tasks.predict.vector_files import vector_file
from lightbert.tasks.predict.vectors import Embedder


def embed_file(
    embedder: Embedder,
    source: Lines | Table,
    out: Path,
    *,
    fields: Fields,
    keep: Sequence[str] = (),
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
    with source, vector_file(out, embedder.width, keep, types) as file:
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
