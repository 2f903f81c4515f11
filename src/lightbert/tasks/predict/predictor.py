"""Predict single texts, lists and streams of any size with a fine-tuned model."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightbert.errors import InputError
from lightbert.tasks.example import Example, Question, TaggedSentence
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.predict.fields import Fields
from lightbert.tasks.predict.forward import Runtime, run
from lightbert.tasks.predict.inputs import check_count, check_pairs, example_of, texts_of
from lightbert.tasks.predict.model_kind import Described, encoder_of, kind_of_model

_GROWTH = 4


class Predictor:
    """Predicts texts in order. A prediction doesn't depend on the other texts of its batch.

    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    device: None = the device of the model. Ignored if a `runtime` is given.
    length: the maximum tokens per row; 0 = as in fine-tuning. Longer texts are truncated, or for tags and answers read
    in windows.
    chunk: the maximum number of texts to read ahead; 0 = chosen for the device.
    runtime: the inference backend, such as an exported file; None = the model itself.
    """

    def __init__(
        self,
        model: Described,
        *,
        batch: int = 0,
        device: str | None = "auto",
        length: int = 0,
        chunk: int = 0,
        runtime: Runtime | None = None,
    ) -> None:
        check_count("batch", batch)
        check_count("chunk", chunk)
        self.model, self.device = model, device
        self.batch, self.chunk, self.runtime = batch, chunk, runtime
        self.encoder = encoder_of(model, length)
        """The tokenizer and the maximum row length."""
        self._fields = Fields.of(model.task, allow_pairs=True)
        self.cut = 0
        """The number of texts truncated so far."""

    @property
    def kind(self) -> Kind[Any]:
        """The kind of task of the model."""
        return kind_of_model(self.model)

    def predict(self, texts: Any, *, batch: int = 0) -> Any:
        """Predict one text or an iterable of texts.

        A text is a string, a tuple of two strings, or a dictionary with "text" and "text_b", "question" and "context",
        or "words", or with the columns of the training data. One text returns one prediction, an iterable of texts a
        list of predictions.
        """
        if isinstance(texts, str | tuple | Mapping | Example | TaggedSentence | Question):
            return next(self.stream([texts], batch=batch))
        return list(self.stream(texts, batch=batch))

    def stream(self, texts: Iterable[Any], *, batch: int = 0) -> Iterator[Prediction]:
        """Predict texts lazily and yield predictions in order.

        The first chunk is one text, so that the first prediction comes at once; then chunks grow up to `chunk`. Within
        a chunk, texts are batched by length.
        """
        check_count("batch", batch)
        kind, source = self.kind, texts_of(texts)
        runtime = self.runtime or self._torch_runtime(kind.head)
        largest = self.chunk or runtime.chunk
        size = 1
        while chunk := list(itertools.islice(source, size)):
            examples = [self._example(text, kind) for text in chunk]
            yield from self._predictions(kind, runtime, examples, batch or self.batch)
            size = min(_GROWTH * size, largest)

    def _example(self, text: Any, kind: Kind[Any]) -> Any:
        return example_of(text, kind, self._fields.names(text) if isinstance(text, Mapping) else None)

    def _torch_runtime(self, head: str) -> Runtime:
        # Imported here because an exported model is predicted without torch.
        from lightbert.models import Model
        from lightbert.nn.inference import Inference
        from lightbert.tasks.predict.torch_runtime import TorchRuntime
        from lightbert.train.distributed import resolve_device

        if not isinstance(self.model, Model):
            raise InputError("a model that is not a lightbert.models.Model requires a runtime")
        model = self.model if self.device is None else self.model.to(resolve_device(self.device))
        return TorchRuntime(Inference(model, head))

    def _predictions(self, kind: Kind[Any], runtime: Runtime, examples: list[Any], batch: int) -> list[Prediction]:
        check_pairs(examples, self.model.task)
        features = kind.features(examples, self.encoder)
        self.cut += features.cut
        outputs = run(runtime, features, self.encoder.specials, batch)
        return kind.predictions(examples, features, outputs)
