"""Encode texts as vectors: the pooled hidden states of an encoder."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError
from lightbert.tasks.example import Example
from lightbert.tasks.predict.forward import Runtime, run
from lightbert.tasks.predict.inputs import check_count, texts_of
from lightbert.tasks.texts import TextEncoder, text_features

Floats = NDArray[np.float32]


class VectorRuntime(Runtime, Protocol):
    """An inference backend that returns one vector per text: a model in torch, or an exported file."""

    @property
    def width(self) -> int:
        """The number of values in a vector."""


class Embedder:
    """Encodes texts and pairs of texts as vectors, in order. A vector doesn't depend on the other texts of its batch.

    encoder: the tokenizer and the maximum row length; longer texts are truncated.
    normalize: scale each vector to length 1.
    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    """

    def __init__(
        self, runtime: VectorRuntime, encoder: TextEncoder, *, normalize: bool = False, batch: int = 0
    ) -> None:
        check_count("batch", batch)
        self.runtime, self.encoder, self.normalize, self.batch = runtime, encoder, normalize, batch
        self.cut = 0
        """The number of texts truncated so far."""

    @property
    def width(self) -> int:
        """The number of values in a vector."""
        return self.runtime.width

    def encode(self, texts: Iterable[str | tuple[str, str] | Example]) -> Floats:
        """Return one vector per text, in order: [N, D]."""
        return np.concatenate([np.zeros((0, self.width), dtype=np.float32), *self.stream(texts)])

    def stream(self, texts: Iterable[str | tuple[str, str] | Example]) -> Iterator[Floats]:
        """Encode any number of texts in bounded memory: yield arrays [n, D] that cover the texts in order."""
        source = iter(texts)
        while chunk := list(itertools.islice(source, self.runtime.chunk)):
            features = text_features([_example(text) for text in chunk], self.encoder, None)
            self.cut += features.cut
            vectors = np.stack([each for (each,) in run(self.runtime, features, self.encoder.specials, self.batch)])
            yield normalize_vectors(vectors) if self.normalize else vectors


def encode_texts(embedder: Embedder, texts: Any) -> Floats:
    """Encode one text as a vector [D], or an iterable of texts as vectors [N, D]."""
    if isinstance(texts, str | tuple | Example):
        vector: Floats = embedder.encode([texts])[0]
        return vector
    return embedder.encode(texts_of(texts))


def normalize_vectors(vectors: Floats) -> Floats:
    """Scale vectors to length 1; zero vectors are unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _example(text: str | Sequence[str] | Example) -> Example:
    match text:
        case Example():
            return text
        case str():
            return Example(text)
        case (str() as first, str() as second):
            return Example(first, second)
    raise InputError(f"a text must be a string or a pair of strings, got {text!r}")
