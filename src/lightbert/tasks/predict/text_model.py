"""What `lightbert.load` and `lightbert.build` return: a model that takes texts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from lightbert import models
from lightbert.errors import InputError
from lightbert.interop import load as interop
from lightbert.models import Config, Model
from lightbert.nn.inference import Pool, TextVector
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.predict.adoption import encoder_of
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.vectors import Floats, normalized, text_vectors


class TextModel(Model):
    """A model with methods for texts: `predict` and `stream` return what its head says, `encode` returns vectors.

    ``model(ids, mask)`` returns states, as with every encoder.
    """

    def predict(self, texts: Any, *, batch: int = 0, length: int = 0) -> Any:
        """Predict one text, or a list of them; see `Predictor.predict` for what a text can be.

        batch: rows of 128 tokens at once, 0 = as many as suit the device.
        length: the longest row of tokens, 0 = as in fine-tuning.
        """
        return Predictor(self, device=None, batch=batch, length=length).predict(texts)

    def stream(self, texts: Iterable[Any], *, batch: int = 0, length: int = 0, chunk: int = 0) -> Iterator[Prediction]:
        """Predict any number of texts, one after another, in bounded memory.

        chunk: how many texts are read ahead at most, 0 = as many as suit the device.
        """
        return Predictor(self, device=None, batch=batch, length=length, chunk=chunk).stream(texts)

    def encode(
        self,
        texts: str | tuple[str, str] | Iterable[str | tuple[str, str]],
        *,
        pool: Pool = "mean",
        normalize: bool = False,
        batch: int = 0,
        length: int = 0,
    ) -> Floats:
        """Vectors of texts: float32 [N, D], or [D] for one text. A tuple is a pair of texts, read in one row.

        pool: "mean" or "max" over the tokens of a text, [CLS] and [SEP] included, or "cls", the state of [CLS].
        normalize: scale each vector to length 1, so that a dot product is the cosine similarity.
        length: the longest row of tokens; a longer text is cut. 0 = as in fine-tuning, or up to 512.
        """
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            raise InputError(f"texts must be a string or a list of strings, got {texts!r}")
        single = isinstance(texts, str | tuple)
        given: Iterable[Any] = [texts] if single else texts
        vectors = text_vectors(TextVector(self, pool), encoder_of(self, length), given, batch)
        vectors = normalized(vectors) if normalize else vectors
        return vectors[0] if single else vectors


def load(name: str | Path) -> TextModel:
    """Read a model, ready to use.

    name: a model folder, ours or Hugging Face's; the name of a bundled model; ``org/name`` or ``org/name@revision`` for
    the Hugging Face Hub; or the common beginning of the files of a TensorFlow 1 checkpoint (docs/models.md).
    """
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
    shapes but no weights, which is how parameters are counted.
    seed: the same seed gives the same weights on every machine, to the last bit. Without one, a seed is drawn from
    PyTorch's generator, so that ``torch.manual_seed`` decides.

    The model has no tokenizer: set ``model.tokenizer`` to use it with texts.
    """
    built = models.build(model, heads, device, seed)
    return TextModel(built, built.metadata)
