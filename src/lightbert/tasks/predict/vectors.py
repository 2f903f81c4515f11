"""Encode texts as vectors: the pooled hidden states of an encoder."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError
from lightbert.tasks.example import Example
from lightbert.tasks.predict.forward import Runtime, run
from lightbert.tasks.texts import TextEncoder, text_features

Floats = NDArray[np.float32]

# Large enough to batch rows of similar length, small enough to bound memory.
_CHUNK = 4096


def text_vectors(
    runtime: Runtime, width: int, encoder: TextEncoder, texts: Iterable[str | tuple[str, str]], batch: int = 0
) -> Floats:
    """One vector of `width` numbers per text or pair of texts, in order: [N, D]."""
    source, found = iter(texts), [np.zeros((0, width), dtype=np.float32)]
    while chunk := list(itertools.islice(source, _CHUNK)):
        features = text_features([_example(text) for text in chunk], encoder, None)
        found.append(np.stack([vector for (vector,) in run(runtime, features, encoder.specials, batch)]))
    return np.concatenate(found)


def encode_texts(
    runtime: Runtime, width: int, encoder: TextEncoder, texts: Any, *, normalize: bool = False, batch: int = 0
) -> Floats:
    """Encode one text as a vector [D], or an iterable of texts as vectors [N, D]."""
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise InputError(f"texts must be a string or a list of strings, got {texts!r}")
    single = isinstance(texts, str | tuple)
    given: Iterable[Any] = [texts] if single else texts
    vectors = text_vectors(runtime, width, encoder, given, batch)
    vectors = normalize_vectors(vectors) if normalize else vectors
    return vectors[0] if single else vectors


def normalize_vectors(vectors: Floats) -> Floats:
    """Scale vectors to length 1; zero vectors are unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _example(text: str | Sequence[str]) -> Example:
    match text:
        case str():
            return Example(text)
        case (str() as first, str() as second):
            return Example(first, second)
    raise InputError(f"a text must be a string or a pair of strings, got {text!r}")
