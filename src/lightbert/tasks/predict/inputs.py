"""What people give a model to predict, as the examples that its kind of task reads."""

from collections.abc import Iterable, Mapping
from typing import Any

from lightbert.errors import InputError
from lightbert.tasks.example import Example, Question, Tagged
from lightbert.tasks.kinds.kind import Kind

FIELDS = ("text", "text_b", "question", "context", "words")
"""What a record may give: a text, or a pair of them; a question and its context; a sentence's words."""


def example_of(given: Any, kind: Kind[Any], names: Mapping[str, str] | None = None) -> Any:
    """Make an example of a text, of a pair in a tuple, or of a record with the fields that the kind needs.

    Examples are taken as they are. A record may have other fields, which are passed over. names: what records call
    "text" and the other fields, if they do it otherwise.
    """
    match given:
        case Example() | Tagged() | Question():
            made: Example | Tagged | Question = given
        case str():
            made = Example(given)
        case (str() as first, str() as second):
            made = Question(first, second) if kind.name == "spans" else Example(first, second)
        case Mapping():
            made = _from_record(given, kind, names or {})
        case _:
            raise InputError(f"{_short(given)} is no text; give a string, a pair of strings, or a record with a 'text'")
    if not isinstance(made, _READ.get(kind.name, (Example,))):
        raise InputError(f"{_short(given)} is not what this model reads: {_NEEDS.get(kind.name, 'it needs a text')}")
    return made


def refuse_single_texts(examples: Iterable[Any], task: Mapping[str, Any]) -> None:
    """Refuse texts without a second one where the model's `task` says that it has learned from pairs only."""
    if not task.get("pairs"):
        return
    for example in examples:
        if isinstance(example, Example) and example.text_b is None:
            raise InputError(
                f"the model reads pairs of texts, and {_short(example.text)} has no second one: give it with --pair, "
                "--text-b or as a tuple"
            )


_READ: dict[str, tuple[type, ...]] = {"spans": (Question,), "tokens": (Example, Tagged)}
_NEEDS = {
    "spans": "it needs a question and a context",
    "tokens": "it needs a text or words",
}


def _from_record(record: Mapping[str, Any], kind: Kind[Any], names: Mapping[str, str]) -> Example | Tagged | Question:
    if kind.name == "spans":
        return Question(_text(record, "question"), _text(record, "context"))
    if kind.name == "tokens" and record.get("words") is not None:
        return Tagged(_words(record["words"]))
    first, second = names.get("text", "text"), names.get("text_b", "text_b")
    single = kind.name == "tokens" or record.get(second) is None
    return Example(_text(record, first), None if single else _text(record, second))


def _text(record: Mapping[str, Any], field: str) -> str:
    value = record.get(field)
    if value is None:
        raise InputError(f"the record has no {field!r}, only {', '.join(map(str, record)) or 'nothing'}")
    if not isinstance(value, str):
        raise InputError(f"the record's {field!r} is no text: {_short(value)}")
    return value


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InputError(f"the record's 'words' are no list of words: {_short(value)}")
    return tuple(value)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
