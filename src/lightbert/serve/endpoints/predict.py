"""``/v1/predict``: predictions as of `lightbert predict`."""

from collections.abc import Mapping, Sequence
from typing import Any

from lightbert.errors import InputError
from lightbert.serve.endpoints.endpoint import Prepared, shorten
from lightbert.tasks.kinds.kind import Outputs
from lightbert.tasks.predict.fields import Fields
from lightbert.tasks.predict.forward import Runtime
from lightbert.tasks.predict.inputs import check_pairs, example_of
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.records import merge

_PAIR = '["first", "second"] or {"text": "first", "text_b": "second"}'
_TAKES = {
    "spans": 'questions with their contexts: {"question": "…", "context": "…"} or ["question", "context"]',
    "tokens": 'texts: "…", or sentences of words: {"words": ["…", "…"]}',
}
_EXAMPLES = {
    "spans": {"question": "Who designed the bridge?", "context": "The old bridge was designed by Ada Brown in 1891."},
    "tokens": "Angela Brown visited Paris in May and met engineers of Siemens.",
}


class Predict:
    """Predicts texts with a fine-tuned model; an answer has the fields of its text, followed by the prediction."""

    name, key = "predict", "predictions"
    options: Mapping[str, tuple[int, int, int]] = {}

    def __init__(self, predictor: Predictor, runtime: Runtime) -> None:
        self._encoder, self._task, self.kind = predictor.encoder, predictor.model.task, predictor.kind
        self._fields = Fields.of(self._task, allow_pairs=True)
        self.runtime, self.specials = runtime, predictor.encoder.specials
        pairs = self._task.get("pairs")
        text = "A quiet film, beautifully made, that stays with you."
        self.takes = _TAKES.get(self.kind.name, f"pairs of texts: {_PAIR}" if pairs else 'texts: "…"')
        self.example = _EXAMPLES.get(self.kind.name, {"text": text, "text_b": "The film is good."} if pairs else text)

    def prepare(self, texts: Sequence[Any], options: Mapping[str, int]) -> Prepared:
        """Convert texts to examples of the model's task, and tokenize them."""
        records = [self._record(text) for text in texts]
        examples = [self._example(number, record) for number, record in enumerate(records)]
        features = self.kind.features(examples, self._encoder)

        def finish(outputs: Outputs) -> list[Any]:
            predictions = self.kind.predictions(examples, features, outputs)
            return [merge(record, prediction) for record, prediction in zip(records, predictions, strict=True)]

        return Prepared(features, finish)

    def _record(self, text: Any) -> Any:
        """A text as the record that `lightbert predict` makes of it."""
        match text:
            case str() if self.kind.name != "spans":
                return {"text": text}
            case [str() as first, str() as second] if self.kind.name != "tokens":
                names = ("question", "context") if self.kind.name == "spans" else ("text", "text_b")
                return dict(zip(names, (first, second), strict=True))
        return text

    def _example(self, number: int, record: Any) -> Any:
        try:
            names = self._fields.names(record) if isinstance(record, Mapping) else None
            example = example_of(record, self.kind, names)
            if self._task.get("pairs") and getattr(example, "text_b", "") is None:
                raise InputError("the model requires a second text")
            if self.kind.name == "tokens" and getattr(example, "text_b", None) is not None:
                raise InputError(f"tagging requires a single text, got a pair; remove {shorten(example.text_b)}")
            check_pairs([example], self._task)
        except InputError as error:
            raise InputError(f"texts[{number}] is invalid: {error}; the model takes {self.takes}") from None
        return example
