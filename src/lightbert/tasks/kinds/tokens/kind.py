"""A tag for each word: named entities, parts of speech."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Example, Tagged
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import LabelledKind, Outputs, Prediction
from lightbert.tasks.kinds.tokens.entities import entities, entity_scores, mark_entities
from lightbert.tasks.kinds.tokens.findings import find_in_tags
from lightbert.tasks.kinds.tokens.word_features import WordFeatures, encode_words, text_of
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True)
class Tokens(LabelledKind[Tagged | Example]):
    """A word's tag is what is said of its first piece (BERT §5.3).

    A plain text can be tagged too; it is split as corpora with tags are (`word_extents`). Each word has a prediction,
    however long the sentence is: it is read in overlapping windows.
    """

    name: ClassVar[str] = "tokens"

    @property
    def head(self) -> str:
        """The head with one answer per token."""
        return "tokens"

    def features(self, examples: Sequence[Tagged | Example], encoder: TextEncoder) -> WordFeatures:
        """Encode; targets are there when every sentence has its tags."""
        return encode_words(examples, encoder, {tag: number for number, tag in enumerate(self.labels)})

    def predictions(
        self, examples: Sequence[Tagged | Example], features: Features, outputs: Outputs
    ) -> list[Prediction]:
        """A tag for each word, and the spans that tags of the B- and I- kind mark, with their characters.

        `start` and `end` count characters of the text; of a sentence in words, of the words joined by single spaces.
        """
        if not isinstance(features, WordFeatures):
            raise TypeError("these features were not made by Tokens.features")
        if not examples:
            return []
        logits = np.concatenate([each for (each,) in outputs])[features.places].astype(np.float64)  # [Σw, C]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares = weights / weights.sum(axis=-1, keepdims=True)
        best, probabilities = shares.argmax(axis=-1).tolist(), shares.max(axis=-1).tolist()
        extents, bounds = features.extents.tolist(), features.words.tolist()
        return [
            self._prediction(
                text_of(example), extents[a:b], [self.labels[tag] for tag in best[a:b]], probabilities[a:b]
            )
            for example, a, b in zip(examples, bounds, bounds[1:], strict=False)
        ]

    def _prediction(
        self, text: str, extents: list[list[int]], tags: list[str], probabilities: list[float]
    ) -> Prediction:
        words = [
            {"text": text[start:end], "start": start, "end": end, "tag": tag, "probability": probability}
            for (start, end), tag, probability in zip(extents, tags, probabilities, strict=True)
        ]
        spans = []
        for entity in entities(tags) if mark_entities(self.labels) else []:
            start, end = extents[entity.start][0], extents[entity.stop - 1][1]
            spans.append({"type": entity.type, "text": text[start:end], "start": start, "end": end})
        return {"tags": words, "spans": spans}

    def metrics(self, examples: Sequence[Tagged | Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """F1, precision and recall of spans as conlleval counts them, if tags mark any, and the share of right tags."""
        truth = [_tags(example) for example in examples]
        predicted = [[word["tag"] for word in prediction["tags"]] for prediction in predictions]
        pairs = [pair for a, b in zip(truth, predicted, strict=True) for pair in zip(a, b, strict=True)]
        accuracy = sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
        spans = entity_scores(truth, predicted) if mark_entities(self.labels) else {}
        return spans | {"accuracy": accuracy}

    def findings(
        self, examples: Sequence[Tagged | Example], predictions: Sequence[Prediction], worst: int
    ) -> list[Finding]:
        """Entities by type, confused tags, calibration, and the sentences with the most errors."""
        return find_in_tags(
            [example for example in examples if isinstance(example, Tagged)], predictions, self.labels, worst
        )


def _tags(example: Tagged | Example) -> tuple[str, ...]:
    if isinstance(example, Example) or example.tags is None:
        raise InputError(f"{text_of(example)[:40]!r} has no tags to judge predictions by; give sentences with tags")
    return example.tags
