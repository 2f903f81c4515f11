"""Examples of tasks: texts, tagged sentences and questions, with their labels where known."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or a pair of texts, with its label."""

    text: str
    text_b: str | None = None
    label: str | float | tuple[str, ...] | None = None
    """A class, a number, or a set of labels; None if unknown."""
    id: str = ""
    """Identifies the example in prediction files; its row number if the data has no ids."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence split into words, with one tag per word if known."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of a context; ``start`` is a character offset."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context, with all accepted answers.

    ``answers`` is None if unknown, and empty if the question is unanswerable (SQuAD 2.0).
    """

    question: str
    context: str
    answers: tuple[Answer, ...] | None = None
    id: str = ""


def is_labelled(example: Any) -> bool:
    """Whether the label, tags or answers of an example are known."""
    match example:
        case TaggedSentence():
            return example.tags is not None
        case Question():
            return example.answers is not None
    return example.label is not None


class Examples(list[E]):
    """The examples of a file, with the number of its bad rows that were skipped."""

    def __init__(self, examples: Iterable[E] = (), skipped: int = 0) -> None:
        super().__init__(examples)
        self.skipped = skipped
