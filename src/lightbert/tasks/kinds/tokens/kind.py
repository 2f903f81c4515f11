"""Token classification: one tag per word, such as named entities or parts of speech."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Example, TaggedSentence
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import LabelledKind, Outputs, Prediction, softmax
from lightbert.tasks.kinds.tokens.entities import are_entity_tags, entities, entity_scores
from lightbert.tasks.kinds.tokens.findings import tagging_findings
from lightbert.tasks.kinds.tokens.word_features import WordFeatures, encode_words, text_of
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True)
class Tokens(LabelledKind[TaggedSentence | Example]):
    """The tag of a word is predicted from its first piece (BERT §5.3).

    Plain texts are split into words by `word_offsets`. Long sentences are read in overlapping windows, so that every
    word has a prediction.
    """

    name: ClassVar[str] = "tokens"

    @property
    def head(self) -> str:
        """The token classification head."""
        return "tokens"

    def features(self, examples: Sequence[TaggedSentence | Example], encoder: TextEncoder) -> WordFeatures:
        """Encode sentences; targets are set if every sentence has tags."""
        return encode_words(examples, encoder, {tag: number for number, tag in enumerate(self.labels)})

    def predictions(
        self, examples: Sequence[TaggedSentence | Example], features: Features, outputs: Outputs
    ) -> list[Prediction]:
        """The tag of each word, and the entity spans if the tags mark entities.

        `start` and `end` are character offsets; for a sentence given as words, in the words joined by single spaces.
        """
        if not isinstance(features, WordFeatures):
            raise TypeError("features must come from Tokens.features")
        if not examples:
            return []
        values = softmax(np.concatenate([each for (each,) in outputs])[features.first_pieces])  # [Σw, C]
        best, probabilities = values.argmax(axis=-1).tolist(), values.max(axis=-1).tolist()
        offsets, bounds = features.offsets.tolist(), features.words.tolist()
        return [
            self._prediction(
                text_of(example), offsets[a:b], [self.labels[tag] for tag in best[a:b]], probabilities[a:b]
            )
            for example, a, b in zip(examples, bounds, bounds[1:], strict=False)
        ]

    def _prediction(
        self, text: str, offsets: list[list[int]], tags: list[str], probabilities: list[float]
    ) -> Prediction:
        words = [
            {"text": text[start:end], "start": start, "end": end, "tag": tag, "probability": probability}
            for (start, end), tag, probability in zip(offsets, tags, probabilities, strict=True)
        ]
        spans = []
        for entity in entities(tags) if are_entity_tags(self.labels) else []:
            start, end = offsets[entity.start][0], offsets[entity.stop - 1][1]
            spans.append({"type": entity.type, "text": text[start:end], "start": start, "end": end})
        return {"tags": words, "spans": spans}

    def metrics(
        self, examples: Sequence[TaggedSentence | Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Conlleval's F1, precision and recall of spans, if the tags mark entities, and the accuracy of tags."""
        truth = [_tags(example) for example in examples]
        predicted = [[word["tag"] for word in prediction["tags"]] for prediction in predictions]
        pairs = [pair for a, b in zip(truth, predicted, strict=True) for pair in zip(a, b, strict=True)]
        accuracy = sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
        spans = entity_scores(truth, predicted) if are_entity_tags(self.labels) else {}
        return spans | {"accuracy": accuracy}

    def baseline(self, train: Features, examples: Sequence[TaggedSentence | Example]) -> list[Prediction]:
        """The most frequent tag of the training data for every word."""
        assert train.targets is not None
        tag = self.labels[int(np.bincount(train.targets[train.targets >= 0], minlength=len(self.labels)).argmax())]
        return [{"tags": [{"tag": tag}] * len(_tags(example))} for example in examples]

    def only_label(self, predictions: Sequence[Prediction]) -> str:
        """The tag of every word."""
        found = {word["tag"] for prediction in predictions for word in prediction["tags"]}
        return str(found.pop()) if len(found) == 1 else ""

    def findings(
        self, examples: Sequence[TaggedSentence | Example], predictions: Sequence[Prediction], worst: int
    ) -> list[Finding]:
        """Rates by entity type or tag, confused tags, calibration, and the most confident errors."""
        return tagging_findings(
            [example for example in examples if isinstance(example, TaggedSentence)], predictions, self.labels, worst
        )


def _tags(example: TaggedSentence | Example) -> tuple[str, ...]:
    if isinstance(example, Example) or example.tags is None:
        raise InputError(f"metrics require sentences with tags, got none for {text_of(example)[:40]!r}")
    return example.tags
