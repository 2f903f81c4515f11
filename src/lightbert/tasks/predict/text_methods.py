"""What a model does with texts: the methods that models in torch and exported models share."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lightbert.errors import InputError
from lightbert.nn.pooling_settings import Pool
from lightbert.tasks.kinds.kind import LabelledKind, Prediction
from lightbert.tasks.predict.predictor import Described, Predictor, kind_of_model
from lightbert.tasks.predict.vectors import Floats, embedder_of, encode_texts


class TextMethods:
    """`predict`, `predict_proba` and `stream` return predictions, `encode` returns vectors."""

    def predict(self: Described, texts: Any, *, batch: int = 0, length: int = 0) -> Any:
        """Predict one text, a list of texts or a table; see `Predictor.predict` for the accepted types.

        batch: batch size in rows of 128 tokens; 0 = chosen for the device.
        length: the maximum tokens per row; 0 = as in fine-tuning.
        """
        return Predictor(self, device=None, batch=batch, length=length).predict(texts)

    def predict_proba(self: Described, texts: Any, *, batch: int = 0, length: int = 0) -> Floats:
        """The probabilities of the labels, in the order of `labels`: [N, C], or [C] for one text."""
        kind = kind_of_model(self)
        if not isinstance(kind, LabelledKind) or not kind.one_per_text:
            raise InputError(f"predict_proba requires a model that classifies texts, got one of kind {kind.name!r}")
        found = Predictor(self, device=None, batch=batch, length=length).predict(texts)
        rows = [list(row["probabilities"].values()) for row in ([found] if isinstance(found, dict) else found)]
        probabilities = np.array(rows, np.float32).reshape(-1, len(kind.labels))
        return probabilities[0] if isinstance(found, dict) else probabilities

    def stream(
        self: Described, texts: Iterable[Any], *, batch: int = 0, length: int = 0, chunk: int = 0
    ) -> Iterator[Prediction]:
        """Predict any number of texts lazily, in bounded memory.

        chunk: the maximum number of texts to read ahead; 0 = chosen for the device.
        """
        return Predictor(self, device=None, batch=batch, length=length, chunk=chunk).stream(texts)

    def encode(
        self: Described,
        texts: str | tuple[str, str] | Iterable[str | tuple[str, str]],
        *,
        pool: Pool | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        size: int = 0,
        batch: int = 0,
        length: int = 0,
        batch_size: int = 0,
        normalize_embeddings: bool = False,
        show_progress_bar: bool = False,
    ) -> Floats:
        """Encode texts as vectors: float32 [N, D], or [D] for one text. A tuple is a pair of texts in one row.

        pool: "mean" or "max" over the tokens of a text, [CLS] and [SEP] included, or "cls", the hidden state of [CLS].
        normalize: scale each vector to length 1, so that a dot product is the cosine similarity.
        prompt: what precedes each text; prompt_name: the prompt of that name in ``model.pooling.prompts``.
        size: the first values of each vector only, before they are scaled; 0 = all.
        length: the maximum tokens per row; longer texts are truncated. 0 = as in fine-tuning, or up to 512.
        batch_size, normalize_embeddings: the names of `batch` and ``normalize=True`` in sentence-transformers.

        The defaults are those of ``model.pooling`` if the model is a sentence encoder, otherwise the unscaled mean. If
        its vectors are made by the head "vector", a pool gives the states without it.
        """
        embedder = embedder_of(
            self,
            pool=pool,
            normalize=True if normalize_embeddings else normalize,
            prompt=prompt,
            prompt_name=prompt_name,
            size=size,
            batch=batch_size or batch,
            length=length,
        )
        return encode_texts(embedder, texts, show_progress=show_progress_bar)
