"""The inputs of prediction: the fields of a record, converted to examples."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from lightbert.errors import InputError, listed, shorten
from lightbert.tasks.example import Example, Question, TaggedSentence
from lightbert.tasks.kinds.kind import Kind


@dataclass(frozen=True)
class Fields:
    """The possible names of the input fields, in order of preference."""

    text: tuple[str, ...] = ("text",)
    text_b: tuple[str, ...] = ("text_b",)
    words: tuple[str, ...] = ("words",)
    pairs: bool = False
    """Whether the second text is required."""

    @classmethod
    def of(
        cls, task: Mapping[str, Any], text: str | None = None, text_b: str | None = None, *, allow_pairs: bool = False
    ) -> "Fields":
        """The given names, or those of the table that the model was fine-tuned on, or the default names.

        task: the `task` of the model. With a model for single texts, a second text is read only if its field is given,
        or with `allow_pairs`.
        """
        data, pairs = task.get("data", {}), task.get("pairs")
        names = {field: _distinct(data.get(field) or field, field) for field in ("text", "text_b", "words")}
        if text is not None:
            names["text"] = (text,)
        if text_b:
            names["text_b"] = (text_b,)
        elif text_b == "" or (pairs is False and not allow_pairs):
            names["text_b"] = ()
        return cls(**names, pairs=bool(text_b or (pairs and names["text_b"])))

    def names(self, present: Collection[str]) -> dict[str, str]:
        """The name of each input field in a record; "" if the record doesn't have it."""
        return {
            field: next((name for name in getattr(self, field) if name in present), "")
            for field in ("text", "text_b", "words")
        }

    def missing(self, present: Collection[str], kind: str) -> str:
        """Describe the first missing field that the kind of task requires, and the remedy; "" if none is missing."""
        names = self.names(present)
        if kind == "spans":
            required = dict.fromkeys(("question", "context"), "rename one of them")
            required = {field: remedy for field, remedy in required.items() if field not in present}
        elif names["text"] or (kind == "tokens" and names["words"]):
            required = {self.text_b[0]: "set its name with --text-b"} if self.pairs and not names["text_b"] else {}
        else:
            required = {self.text[0]: "set its name with --text"}
        for field, remedy in required.items():
            return f"{field!r}, only {listed(map(repr, present)) or 'nothing'}; {remedy}"
        return ""


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


FIELDS = ("text", "text_b", "question", "context", "words")
"""The input fields of a record: a text or a pair of texts; a question and its context; the words of a sentence."""


def example_of(text: Any, kind: Kind[Any], names: Mapping[str, str] | None = None) -> Any:
    """Convert a string, a tuple of two strings, or a record with the fields that the kind requires to an example.

    Examples are returned unchanged. Other fields of a record are ignored.
    names: field -> its name in the record, if it differs, such as {"text": "body"}; "" if the field is not used.
    """
    match text:
        case Example() | TaggedSentence() | Question():
            example: Example | TaggedSentence | Question = text
        case str():
            example = Example(text)
        case (str() as first, str() as second):
            example = Question(first, second) if Question in kind.inputs else Example(first, second)
        case Mapping():
            example = _from_record(text, kind, names or {})
        case _:
            raise InputError(
                f"a text must be a string, a pair of strings, or a record with a 'text', got {shorten(text)}"
            )
    if not isinstance(example, kind.inputs):
        raise InputError(f"the model requires {kind.requires}, got {shorten(text)}")
    return example


def is_single(texts: Any) -> bool:
    """Whether the input is one text instead of several."""
    return isinstance(texts, str | tuple | Mapping | Example | TaggedSentence | Question)


def table_records(table: Any, fields: Fields, kind: str) -> list[dict[str, Any]]:
    """The records of a table of pandas, polars or pyarrow, with the input fields only."""
    columns = list(getattr(table, "column_names", table.columns))
    if missing := fields.missing(columns, kind).rpartition("; ")[0]:
        raise InputError(f"the table must have a column {missing}; rename a column, or give a list of texts")
    names = [*filter(None, fields.names(columns).values()), *({"question", "context"} & set(columns))]
    cells = [table[name].to_pylist() if hasattr(table[name], "to_pylist") else list(table[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]


def texts_of(texts: Any) -> Iterator[Any]:
    """Iterate over texts. A single text and a table are errors: they would yield characters, keys or columns."""
    if is_single(texts):
        raise InputError(f"texts must be a list of texts, got a single one, {shorten(texts)}; put it into a list")
    if hasattr(texts, "columns"):
        raise InputError(f"texts must be a list of texts, got a {type(texts).__name__}; give one of its columns")
    # Arrays of pyarrow, whose elements are no strings.
    texts = texts.to_pylist() if hasattr(texts, "to_pylist") else texts
    if not isinstance(texts, bytes | bytearray):
        with suppress(TypeError):
            return iter(texts)
    raise InputError(f"texts must be a string or a list of strings, got {shorten(texts)}")


def check_count(name: str, value: Any) -> None:
    """Check that a setting is a number of things, or 0 for its default."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name} must be an integer, got {value!r}")
    if value < 0:
        raise InputError(f"{name} must be >= 0, got {value}")


def check_pairs(examples: Iterable[Any], task: Mapping[str, Any]) -> None:
    """Check that texts are pairs, or are not, as in the data that the model was fine-tuned on, by its `task`."""
    pairs = task.get("pairs")
    if pairs is None or task.get("kind") == "tokens":
        return
    for example in examples:
        if not isinstance(example, Example) or pairs == (example.text_b is not None):
            continue
        if pairs:
            raise InputError(
                f"the model requires pairs of texts, got a single one: {shorten(example.text)}; give the second with "
                "--pair, --text-b or as a tuple"
            )
        raise InputError(
            f"the model was fine-tuned on single texts, got the pair {shorten(example.text)} and "
            f"{shorten(example.text_b)}; leave out the second text, or fine-tune a model on pairs"
        )


def _from_record(
    record: Mapping[str, Any], kind: Kind[Any], names: Mapping[str, str]
) -> Example | TaggedSentence | Question:
    if Question in kind.inputs:
        return Question(_text(record, "question"), _text(record, "context"))
    words, is_sentence = names.get("words", "words"), TaggedSentence in kind.inputs
    if is_sentence and words and record.get(words) is not None:
        return TaggedSentence(_words(record[words]))
    first, second = names.get("text") or "text", names.get("text_b", "text_b")
    single = is_sentence or not second or record.get(second) is None
    return Example(_text(record, first), None if single else _text(record, second))


def _text(record: Mapping[str, Any], field: str) -> str:
    value = record.get(field)
    if value is None:
        raise InputError(f"the record must have {field!r}, has only {listed(map(str, record)) or 'nothing'}")
    if not isinstance(value, str):
        raise InputError(f"{field!r} of the record must be a text, got {shorten(value)}")
    return value


def _words(value: Any) -> tuple[str, ...]:
    # Tables have arrays and series of words.
    value = value.tolist() if hasattr(value, "tolist") else value.to_list() if hasattr(value, "to_list") else value
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InputError(f"'words' of the record must be a list of words, got {shorten(value)}")
    return tuple(value)
