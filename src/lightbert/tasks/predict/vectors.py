"""Vectors of single texts, lists and streams of any size."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.nn.pooling_settings import Pool, Pooling
from lightbert.progress import progress
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.inputs import check_count, texts_of
from lightbert.tasks.predict.predictor import Described, HasRuntime, VectorRuntime, encoder_of
from lightbert.tasks.predict.runtime import run

Floats = NDArray[np.float32]


class Embedder:
    """Encodes texts and pairs of texts as vectors, in order. A vector doesn't depend on the other texts of its batch.

    encoder: the tokenizer and the maximum row length; longer texts are truncated.
    normalize: scale each vector to length 1.
    prompt: what precedes each text. size: keep the first values of each vector only, before scaling; 0 = all.
    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    """

    def __init__(
        self,
        runtime: VectorRuntime,
        encoder: TextEncoder,
        *,
        normalize: bool = False,
        prompt: str = "",
        size: int = 0,
        batch: int = 0,
    ) -> None:
        check_count("batch", batch)
        self.runtime, self.encoder, self.normalize, self.batch = runtime, encoder, normalize, batch
        self.prompt, self.width = prompt, size or runtime.width
        """The number of values in a vector."""
        self.cut = 0
        """The number of texts truncated so far."""

    def encode(self, texts: Iterable[str | tuple[str, str] | Example]) -> Floats:
        """Return one vector per text, in order: [N, D]."""
        return np.concatenate([np.zeros((0, self.width), dtype=np.float32), *self.stream(texts)])

    def stream(self, texts: Iterable[str | tuple[str, str] | Example]) -> Iterator[Floats]:
        """Encode any number of texts in bounded memory: yield arrays [n, D] that cover the texts in order."""
        source = iter(texts)
        while chunk := list(itertools.islice(source, self.runtime.chunk)):
            features = self.features([_example(text) for text in chunk])
            self.cut += features.cut
            yield self.finish(run(self.runtime, features, self.encoder.specials, self.batch))

    def features(self, examples: Sequence[Example]) -> Features:
        """Encode examples after the prompt."""
        if self.prompt:
            examples = [replace(example, text=self.prompt + example.text) for example in examples]
        return text_features(examples, self.encoder, None)

    def finish(self, outputs: Outputs) -> Floats:
        """The outputs of the runtime as vectors [N, D]."""
        vectors = np.stack([vector for (vector,) in outputs])[:, : self.width]
        return normalize_vectors(vectors) if self.normalize else vectors


def embedder_of(
    model: Described,
    *,
    pool: Pool | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    size: int = 0,
    length: int = 0,
    batch: int = 0,
    device: str | None = None,
) -> Embedder:
    """An embedder with the pooling of a sentence encoder by default, otherwise with the unscaled mean.

    The settings are those of `TextMethods.encode`; device: None = the device of the model.
    """
    default = model.pooling or Pooling()
    if isinstance(model, HasRuntime):
        runtime = model.vector_runtime(pool, normalize)
    else:
        # Imported here because an exported model is used without torch.
        from lightbert.tasks.predict.torch_runtime import place, vector_runtime

        runtime = vector_runtime(place(model, device), pool)
    default.check_size(size, runtime.width)
    return Embedder(
        runtime,
        encoder_of(model, length or default.length),
        normalize=default.normalize if normalize is None else normalize,
        prompt=default.prompt(prompt_name) if prompt is None else prompt,
        size=size,
        batch=batch,
    )


QUERIES, DOCUMENTS = ("query",), ("document", "passage", "corpus")
"""The names of the prompts for queries and for the texts that they search."""


def unit_embedder(model: Described, prompts: Sequence[str] = (), batch: int = 0) -> Embedder:
    """An embedder for vectors of length 1, with the first of these prompts that the model has, else its default one."""
    prompt_name = next((name for name in prompts if model.pooling and name in model.pooling.prompts), None)
    return embedder_of(model, normalize=True, prompt_name=prompt_name, batch=batch)


def encode_texts(embedder: Embedder, texts: Any, *, show_progress: bool = False) -> Floats:
    """Encode one text as a vector [D], or an iterable of texts as vectors [N, D]."""
    if isinstance(texts, str | tuple | Example):
        vector: Floats = embedder.encode([texts])[0]
        return vector
    if not show_progress:
        return embedder.encode(texts_of(texts))
    parts = [np.zeros((0, embedder.width), dtype=np.float32)]
    with progress("encode", len(texts) if hasattr(texts, "__len__") else None, "texts") as bar:
        for vectors in embedder.stream(texts_of(texts)):
            parts.append(vectors)
            bar.advance(len(vectors))
    return np.concatenate(parts)


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
