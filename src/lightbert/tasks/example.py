"""What a task consists of: texts, tagged words, or questions, each with its answer where that is known."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or a pair of texts, and what is to be said about it."""

    text: str
    text_b: str | None = None
    label: str | float | tuple[str, ...] | None = None
    """A class, a number, or a set of labels; None when it is unknown."""
    id: str = ""
    """The name under which predictions are handed in; its place in the file where the task has no names."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence in words, one tag for each when they are known."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A stretch of a context; ``start`` counts characters."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context, and all the answers that count as right.

    ``answers`` is None when they are unknown, and empty when the context holds none (SQuAD 2.0).
    """

    question: str
    context: str
    answers: tuple[Answer, ...] | None = None
    id: str = ""
