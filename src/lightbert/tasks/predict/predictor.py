"""What a fine-tuned model says about texts, one by one or in streams of any size."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from lightbert.errors import InputError
from lightbert.nn.encoder import Encoder
from lightbert.tasks.example import Example, Question, Tagged
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.predict.adoption import encoder_of, kind_of_model
from lightbert.tasks.predict.forward import run
from lightbert.tasks.predict.inputs import example_of, refuse_single_texts
from lightbert.tasks.texts import TextEncoder
from lightbert.train.distributed import device_named

_CHUNK = {"cpu": 1024, "cuda": 16384}
_GROWTH = 4


class Predictor:
    """Predictions in the order of the texts. They don't depend on the batch that a text happens to be in.

    batch: rows of 128 tokens at once, 0 = as many as suit the device. device: None = wherever the model is.
    length: the longest row of tokens, 0 = as in fine-tuning; a longer text is cut, or where each word matters (tags,
    answers) read in windows. chunk: how many texts are read ahead at most, 0 = as many as suit the device.
    """

    def __init__(
        self, model: Encoder, *, batch: int = 0, device: str | None = "auto", length: int = 0, chunk: int = 0
    ) -> None:
        if length and 0 < model.positions < length:
            raise InputError(f"length = {length}, but the model reads {model.positions} tokens at most: give fewer")
        if batch < 0 or chunk < 0:
            raise InputError(f"batch = {batch} and chunk = {chunk} count texts: give positive numbers, or 0")
        self.model = model if device is None else model.to(device_named(device))
        self.batch, self.length, self.chunk = batch, length, chunk
        self.cut = 0
        """How many texts were too long so far, and have lost their ends."""

    @property
    def kind(self) -> Kind[Any]:
        """What the model can be asked."""
        return kind_of_model(self.model)

    @cached_property
    def encoder(self) -> TextEncoder:
        """The model's tokenizer and its longest row."""
        encoder = encoder_of(self.model)
        return TextEncoder(encoder.tokenizer, self.length) if self.length else encoder

    def predict(self, texts: Any, *, batch: int = 0) -> Any:
        """Predict one text, or a list of them.

        A text is a string, a pair of strings in a tuple, or a dictionary with "text" and "text_b", "question" and
        "context", or "words". One text gives one prediction, an iterable of texts a list of them.
        """
        if isinstance(texts, str | tuple | Mapping | Example | Tagged | Question):
            return next(self.stream([texts], batch=batch))
        if isinstance(texts, bytes) or not isinstance(texts, Iterable):
            raise InputError(f"{texts!r} is no text; give a string, or a list of strings")
        return list(self.stream(texts, batch=batch))

    def stream(self, texts: Iterable[Any], *, batch: int = 0) -> Iterator[Prediction]:
        """Predict texts as they come. The first answer needs one text only; then ever more are read at once.

        Texts are sorted by length within what was read, and come out in their order.
        """
        kind, source = self.kind, iter(texts)
        most = self.chunk or _CHUNK.get(self.model.table.device.type, _CHUNK["cpu"])
        size = 1
        while chunk := list(itertools.islice(source, size)):
            yield from self._predictions(kind, [example_of(text, kind) for text in chunk], batch or self.batch)
            size = min(_GROWTH * size, most)

    def _predictions(self, kind: Kind[Any], examples: list[Any], batch: int) -> list[Prediction]:
        refuse_single_texts(examples, self.model.task)
        features = kind.features(examples, self.encoder)
        self.cut += features.cut
        outputs = run(self.model, kind.head, features, self.encoder.specials, batch)
        return kind.predictions(examples, features, outputs)
