"""The model class that `lightbert.load` and `lightbert.build` return, with methods for texts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lightbert import models
from lightbert.interop import load as interop
from lightbert.models import Config, Model
from lightbert.models.sentence_files import check_pooling
from lightbert.nn.inference import TextVector
from lightbert.nn.pooling_settings import Pool, Pooling
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.predict.predictor import Embedder, Floats, Predictor, encode_texts, encoder_of
from lightbert.tasks.predict.torch_runtime import TorchVectors


def embedder_of(
    model: Model,
    *,
    pool: Pool | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    size: int = 0,
    length: int = 0,
    batch: int = 0,
) -> Embedder:
    """An embedder with the pooling of a sentence encoder by default, otherwise with the unscaled mean.

    pool: pools the states themselves, without the projection of the sentence encoder.
    prompt: what precedes each text; None = the prompt of the sentence encoder with the name `prompt_name`.
    length: the maximum tokens per row; 0 = that of the sentence encoder, or as in fine-tuning, or up to 512.
    """
    default = model.pooling or Pooling()
    check_pooling(model)
    vector = TextVector(model, pool or default.pool, projection=default.projection and pool is None)
    default.check_size(size, vector.width)
    return Embedder(
        TorchVectors(vector),
        encoder_of(model, length or default.length),
        normalize=default.normalize if normalize is None else normalize,
        prompt=default.prompt(prompt_name) if prompt is None else prompt,
        size=size,
        batch=batch,
    )


class TextModel(Model):
    """A model with methods for texts: `predict` and `stream` return predictions, `encode` returns vectors.

    ``model(ids, mask)`` returns hidden states, as with every encoder.
    """

    def predict(self, texts: Any, *, batch: int = 0, length: int = 0) -> Any:
        """Predict one text or a list of texts; see `Predictor.predict` for the accepted types.

        batch: batch size in rows of 128 tokens; 0 = chosen for the device.
        length: the maximum tokens per row; 0 = as in fine-tuning.
        """
        return Predictor(self, device=None, batch=batch, length=length).predict(texts)

    def stream(self, texts: Iterable[Any], *, batch: int = 0, length: int = 0, chunk: int = 0) -> Iterator[Prediction]:
        """Predict any number of texts lazily, in bounded memory.

        chunk: the maximum number of texts to read ahead; 0 = chosen for the device.
        """
        return Predictor(self, device=None, batch=batch, length=length, chunk=chunk).stream(texts)

    def encode(
        self,
        texts: str | tuple[str, str] | Iterable[str | tuple[str, str]],
        *,
        pool: Pool | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        size: int = 0,
        batch: int = 0,
        length: int = 0,
    ) -> Floats:
        """Encode texts as vectors: float32 [N, D], or [D] for one text. A tuple is a pair of texts in one row.

        pool: "mean" or "max" over the tokens of a text, [CLS] and [SEP] included, or "cls", the hidden state of [CLS].
        normalize: scale each vector to length 1, so that a dot product is the cosine similarity.
        prompt: what precedes each text; prompt_name: the prompt of that name in ``model.pooling.prompts``.
        size: the first values of each vector only, before they are scaled; 0 = all.
        length: the maximum tokens per row; longer texts are truncated. 0 = as in fine-tuning, or up to 512.

        The defaults are those of ``model.pooling`` if the model is a sentence encoder, otherwise the unscaled mean. If
        its vectors are made by the head "vector", a pool gives the states without it.
        """
        embedder = embedder_of(
            self,
            pool=pool,
            normalize=normalize,
            prompt=prompt,
            prompt_name=prompt_name,
            size=size,
            length=length,
            batch=batch,
        )
        return encode_texts(embedder, texts)


def load_text_model(name: str | Path) -> TextModel:
    """Load a model by name; exported models are loaded by `lightbert.load`."""
    model = interop.load(name)
    return TextModel(model, model.metadata)


def build(
    model: str | Config,
    heads: Mapping[str, dict[str, Any]] | None = None,
    device: str | torch.device | None = None,
    seed: int | None = None,
) -> TextModel:
    """Build a model with random weights from a preset's name or a config.

    heads: kind -> settings, such as ``{"mlm": {}, "classify": {"labels": 3}}``. On the device "meta" the model has
    shapes but no weights, which is enough to count parameters.
    seed: the same seed gives the same weights on every machine, bit for bit. Without a seed, one is drawn from
    PyTorch's global generator, which ``torch.manual_seed`` controls.

    The model has no tokenizer: set ``model.tokenizer`` to use it with texts.
    """
    built = models.build(model, heads, device, seed)
    return TextModel(built, built.metadata)
