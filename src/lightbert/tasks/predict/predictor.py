"""What a fine-tuned model says about texts, one by one or in streams of any size."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.inference import Inference
from lightbert.tasks.example import Example, Question, Tagged
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.predict.adoption import encoder_of, kind_of_model
from lightbert.tasks.predict.forward import Runtime, run
from lightbert.tasks.predict.inputs import example_of, refuse_single_texts
from lightbert.train.distributed import resolve_device

_CHUNK = {"cpu": 1024, "cuda": 16384}
_GROWTH = 4


class Predictor:
    """Predictions in the order of the texts. They don't depend on the batch that a text happens to be in.

    batch: rows of 128 tokens at once, 0 = as many as suit the device. device: None = wherever the model is.
    length: the longest row of tokens, 0 = as in fine-tuning; a longer text is cut, or where each word matters (tags,
    answers) read in windows. chunk: how many texts are read ahead at most, 0 = as many as suit the device.
    runtime: what computes the outputs of the head, such as an exported file; None = the model itself.
    """

    def __init__(
        self,
        model: Model,
        *,
        batch: int = 0,
        device: str | None = "auto",
        length: int = 0,
        chunk: int = 0,
        runtime: Runtime | None = None,
    ) -> None:
        for name, value in (("batch", batch), ("chunk", chunk)):
            if value < 0:
                raise InputError(f"{name} must be >= 0, got {value}")
        self.model = model if device is None else model.to(resolve_device(device))
        self.batch, self.chunk, self.runtime = batch, chunk, runtime
        self.encoder = encoder_of(model, length)
        """The model's tokenizer and its longest row."""
        self.cut = 0
        """How many texts were too long so far, and have lost their ends."""

    @property
    def kind(self) -> Kind[Any]:
        """What the model can be asked."""
        return kind_of_model(self.model)

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
        runtime = self.runtime or Inference(self.model, kind.head)
        most = self.chunk or _CHUNK.get(runtime.device.type, _CHUNK["cpu"])
        size = 1
        while chunk := list(itertools.islice(source, size)):
            examples = [example_of(text, kind) for text in chunk]
            yield from self._predictions(kind, runtime, examples, batch or self.batch)
            size = min(_GROWTH * size, most)

    def _predictions(self, kind: Kind[Any], runtime: Runtime, examples: list[Any], batch: int) -> list[Prediction]:
        refuse_single_texts(examples, self.model.task)
        features = kind.features(examples, self.encoder)
        self.cut += features.cut
        outputs = run(runtime, features, self.encoder.specials, batch)
        return kind.predictions(examples, features, outputs)
