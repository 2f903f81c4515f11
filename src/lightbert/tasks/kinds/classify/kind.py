"""Single-label classification of texts or pairs of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.examples.features import Features
from lightbert.errors import unknown
from lightbert.tasks import metrics
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.classify.findings import classification_findings
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import LabelledKind, Outputs, Prediction, softmax
from lightbert.tasks.texts import TextEncoder, text_features


@dataclass(frozen=True)
class Classify(LabelledKind[Example]):
    """Labels in the order of the head's outputs; in binary tasks the second label is the positive class."""

    name: ClassVar[str] = "classify"

    @property
    def head(self) -> str:
        """The classification head."""
        return "classify"

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode examples; the target of a row is the index of its label."""
        known = [example.label for example in examples if example.label is not None]
        index_of = {label: index for index, label in enumerate(self.labels)}
        for label in known:
            if label not in index_of:
                raise unknown("label", str(label), self.labels)
        complete = len(known) == len(examples) > 0
        targets = np.array([index_of[str(label)] for label in known], np.int64) if complete else None
        return text_features(examples, encoder, targets)

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """The most probable label, and the probabilities of all labels."""
        if not outputs:
            return []
        logits = np.concatenate([each for (each,) in outputs]).reshape(len(outputs), -1)  # [N, C]
        probabilities = softmax(logits).tolist()
        return [
            {
                "label": self.labels[best],
                "probability": row[best],
                "probabilities": dict(zip(self.labels, row, strict=True)),
            }
            for best, row in zip(logits.argmax(axis=-1).tolist(), probabilities, strict=True)
        ]

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Accuracy, F1 (binary: of the second label; otherwise macro F1) and Matthews' correlation."""
        gold = [str(example.label) for example in examples]
        predicted = [prediction["label"] for prediction in predictions]
        result = {"accuracy": metrics.accuracy(gold, predicted)}
        if len(self.labels) == 2:
            result["f1"] = metrics.f1(gold, predicted, self.labels[1])
        else:
            result["macro_f1"] = metrics.macro_f1(gold, predicted)
        return result | {"mcc": metrics.matthews(gold, predicted)}

    def baseline(self, train: Features, examples: Sequence[Example]) -> list[Prediction]:
        """The most frequent label of the training data."""
        assert train.targets is not None
        counts = np.bincount(train.targets, minlength=len(self.labels))
        return [{"label": self.labels[int(counts.argmax())]}] * len(examples)

    def only_label(self, predictions: Sequence[Prediction]) -> str:
        """The label that all predictions have."""
        found = {prediction["label"] for prediction in predictions}
        return str(found.pop()) if len(found) == 1 else ""

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Rates by label, confusion matrix, calibration, and the most confident errors."""
        return classification_findings(examples, predictions, self.labels, worst)
