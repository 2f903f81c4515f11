"""The interface of an endpoint: texts of a request to rows of tokens, outputs of the model to answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lightbert.data.examples.features import Features
from lightbert.data.examples.specials import Specials
from lightbert.errors import InputError
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.forward import Runtime


@dataclass(frozen=True)
class Prepared:
    """A request as rows of tokens, and the function that turns their outputs into one answer per text."""

    features: Features
    finish: Callable[[Outputs], list[Any]]
    runtime: Runtime | None = None
    """What computes the rows; None = the runtime of the endpoint."""

    @property
    def tokens(self) -> int:
        """The number of tokens to compute."""
        return len(self.features.tokens)


class Endpoint(Protocol):
    """Something that a model can do with texts, under ``/v1/NAME``."""

    @property
    def name(self) -> str:
        """The last part of the path."""

    @property
    def key(self) -> str:
        """The key of the answers."""

    @property
    def takes(self) -> str:
        """The texts that it takes, in words."""

    @property
    def example(self) -> Any:
        """A text to try."""

    @property
    def options(self) -> Mapping[str, tuple[int, int, int]]:
        """Integer keys of a request besides the texts -> (default, minimum, maximum)."""

    @property
    def runtime(self) -> Runtime:
        """What computes the rows."""

    @property
    def specials(self) -> Specials:
        """The ids of the special tokens."""

    def prepare(self, texts: Sequence[Any], options: Mapping[str, int]) -> Prepared:
        """Validate and tokenize texts; raise an InputError that names the text."""


def require_strings(texts: Sequence[Any]) -> list[str]:
    """Check that every text is a string."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{number}] must be a string, got {shorten(text)}")
    return list(texts)


def as_example(number: int, text: Any) -> Example:
    """A text or a pair of texts of a request as an example without a label."""
    match text:
        case str():
            return Example(text)
        case [str() as first, str() as second]:
            return Example(first, second)
        case {"text": str() as first, "text_b": str() as second}:
            return Example(first, second)
        case {"text": str() as first} if "text_b" not in text:
            return Example(first)
    raise InputError(f"texts[{number}] must be a string or a pair of strings, got {shorten(text)}")


def shorten(value: Any) -> str:
    """A value for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
