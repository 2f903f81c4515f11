"""Encode texts as vectors: the pooled hidden states of an encoder."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError
from lightbert.nn.inference import TextVector
from lightbert.tasks.example import Example
from lightbert.tasks.predict.forward import run
from lightbert.tasks.texts import TextEncoder, text_features

Floats = NDArray[np.float32]

# Large enough to batch rows of similar length, small enough to bound memory.
_CHUNK = 4096


def text_vectors(
    inference: TextVector, encoder: TextEncoder, texts: Iterable[str | tuple[str, str]], batch: int = 0
) -> Floats:
    """One vector per text or pair of texts, in order: [N, D]."""
    source, found = iter(texts), [np.zeros((0, inference.encoder.width), dtype=np.float32)]
    while chunk := list(itertools.islice(source, _CHUNK)):
        features = text_features([_example(text) for text in chunk], encoder, None)
        found.append(np.stack([vector for (vector,) in run(inference, features, encoder.specials, batch)]))
    return np.concatenate(found)


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
