"""Read SQuAD's JSON files; errors give the path of the element, such as data[3].paragraphs[0].qas[2]."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from lightbert.data.text_files import read_decompressed
from lightbert.errors import InputError

T = TypeVar("T")


class Entry(NamedTuple):
    """The fields of a question in the file, with its paragraph and its JSON path."""

    place: str
    paragraph: dict[str, Any]
    fields: dict[str, Any]


def read_json(path: str | Path) -> dict[str, Any]:
    """Read an object from a JSON file, plain or compressed."""
    try:
        found = json.loads(read_decompressed(Path(path)))
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 at byte {error.start}; convert it") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not JSON ({error}); give a file in SQuAD format") from None
    if not isinstance(found, dict):
        raise InputError(f"'{path}' is not a JSON object; give a file in SQuAD format")
    return found


def entries(document: dict[str, Any]) -> Iterator[Entry]:
    """Yield every question of a data file, in order."""
    for a, article in enumerate(field(document, "data", list, "the top")):
        here = f"data[{a}]"
        for p, paragraph in enumerate(field(article, "paragraphs", list, here)):
            there = f"{here}.paragraphs[{p}]"
            for q, question in enumerate(field(paragraph, "qas", list, there)):
                place = f"{there}.qas[{q}]"
                if not isinstance(question, dict):
                    raise InputError(f"{place} must be an object")
                yield Entry(place, paragraph, question)


_NAMES = {str: "a text", list: "a list", int: "an integer"}


@overload
def field(record: object, name: str, kind: type[list[Any]], place: str) -> list[Any]: ...
@overload
def field(record: object, name: str, kind: type[T], place: str) -> T: ...
def field(record: object, name: str, kind: type[Any], place: str) -> Any:
    """Get a field and check its type; the error gives its JSON path."""
    value = record.get(name) if isinstance(record, dict) else None
    # In Python, bool is a subclass of int.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{place} must have {_NAMES[kind]} {name!r}")
    return value
