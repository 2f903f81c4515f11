"""Examples of tasks, and their encoding as rows of tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from lightbert.data.text_files import check_decoded
from lightbert.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

    from lightbert.data.features import Features, Specials


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


class TextEncoder:
    """A tokenizer with a maximum row length: [CLS] first [SEP], or [CLS] first [SEP] second [SEP].

    Longer texts are truncated at the end; of a pair, always the longer text loses a token (BERT, ELECTRA).
    """

    def __init__(self, tokenizer: "Tokenizer", length: int) -> None:
        if length < 4:
            raise InputError(f"length must be >= 4, got {length}: a pair of texts has [CLS] and two [SEP]")
        self.tokenizer, self.length = tokenizer, length
        # A loaded tokenizer may have truncation or padding enabled. Copy it only then: it takes tens of milliseconds.
        if tokenizer.truncation is not None or tokenizer.padding is not None:
            from tokenizers import Tokenizer as _Tokenizer

            self.tokenizer = _Tokenizer.from_str(tokenizer.to_str())
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()

    @cached_property
    def specials(self) -> "Specials":
        """The ids of the special tokens."""
        from lightbert.data.features import Specials

        return Specials.of(self.tokenizer)

    def pieces(self, texts: Sequence[str]) -> "list[Encoding]":
        """Tokenize without special tokens or truncation; offsets are in characters of each text."""
        try:
            return self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        except TypeError:
            for text in texts:
                check_decoded(text)
            raise

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], int]:
        """Add the special tokens and truncate to the length; return the row and where its second segment begins."""
        cls, sep = self.specials.cls, self.specials.sep
        if second is None:
            row = [cls, *first[: self.length - 2], sep]
            return row, len(row)
        room, a, b = self.length - 3, len(first), len(second)
        # The closed form of removing one token at a time from the longer text, from the second one on ties.
        if a + b > room:
            a = min(a, max(room - b, (room + 1) // 2))
            b = room - a
        row = [cls, *first[:a], sep, *second[:b], sep]
        return row, a + 2


def text_features(examples: Sequence[Example], encoder: TextEncoder, targets: "NDArray[Any] | None") -> "Features":
    """Encode texts and pairs of texts, one row per example, truncated to the encoder's length."""
    from lightbert.data.features import Features

    firsts = encoder.pieces([example.text for example in examples])
    seconds = iter(encoder.pieces([example.text_b for example in examples if example.text_b is not None]))
    rows, begins, cut = [], [], 0
    for example, first in zip(examples, firsts, strict=True):
        second = None if example.text_b is None else next(seconds).ids
        row, begin = encoder.row(first.ids, second)
        # [CLS] and [SEP], and another [SEP] for a pair.
        cut += len(first.ids) + (2 if second is None else 3 + len(second)) > len(row)
        rows.append(row)
        begins.append(begin)
    return Features.of(rows, begins, targets=targets, cut=cut)
