"""Single-label classification of texts or pairs of texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.features import Features
from lightbert.errors import unknown
from lightbert.tasks import metrics
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings import (
    Cell,
    Finding,
    Rates,
    Table,
    calibration_finding,
    example_fields,
    example_line,
    rates_finding,
)
from lightbert.tasks.kinds.kind import LabelledKind, Outputs, Prediction, softmax
from lightbert.tasks.metrics import confusion
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


_MAX_MATRIX_LABELS = 12
_MAX_PAIRS = 20


def classification_findings(
    examples: Sequence[Example], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """Analyse predicted labels; `labels` are those of the model."""
    gold = [str(example.label) for example in examples]
    predicted = [str(prediction["label"]) for prediction in predictions]
    correct = [a == b for a, b in zip(gold, predicted, strict=True)]
    return [
        rates_finding(label_rates(gold, predicted, labels)),
        _confusion(gold, predicted, labels),
        calibration_finding(
            [prediction["probability"] for prediction in predictions],
            correct,
            [brier_score(prediction, label) for prediction, label in zip(predictions, gold, strict=True)],
            "Probability of the predicted label, and whether it is correct",
        ),
        _most_wrong(examples, predictions, worst),
    ]


def brier_score(prediction: Prediction, gold: str) -> float:
    """The squared distance between the probabilities and the truth, summed over the labels, in [0, 2] (Brier 1950)."""
    return float(sum((p - (label == gold)) ** 2 for label, p in prediction["probabilities"].items()))


def label_rates(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> dict[str, Rates]:
    """Precision, recall and F1 of every label, including labels that don't occur."""
    right = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    said, true = Counter(predicted), Counter(gold)
    return {label: Rates.of(right=right[label], said=said[label], true=true[label]) for label in labels}


def _confusion(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Finding:
    counts = confusion(gold, predicted, labels)
    value = {"labels": list(labels), "counts": counts}
    if len(labels) <= _MAX_MATRIX_LABELS:
        rows: list[tuple[Cell, ...]] = [(label, *row) for label, row in zip(labels, counts, strict=True)]
        title, columns = "Confusion matrix", ("true \\ predicted", *labels)
        return Finding("confusion", value, (Table(title, columns, rows),))
    return Finding("confusion", value, (confused_pairs(gold, predicted),))


def confused_pairs(gold: Sequence[str], predicted: Sequence[str]) -> Table:
    """The most frequently confused pairs of labels."""
    pairs = Counter((a, b) for a, b in zip(gold, predicted, strict=True) if a != b)
    rows = [(true, other, count) for (true, other), count in pairs.most_common(_MAX_PAIRS)]
    return Table("Most confused", ("true", "predicted", "count"), rows)


def _most_wrong(examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> Finding:
    wrong = [
        (example, prediction)
        for example, prediction in zip(examples, predictions, strict=True)
        if example.label != prediction["label"]
    ]
    wrong = sorted(wrong, key=lambda pair: -pair[1]["probability"])[:worst]
    value = [
        {
            **example_fields(example),
            "label": example.label,
            "predicted": prediction["label"],
            "probability": prediction["probability"],
        }
        for example, prediction in wrong
    ]
    rows = [
        (str(example.label), prediction["label"], prediction["probability"], example_line(example))
        for example, prediction in wrong
    ]
    columns = ("true", "predicted", "probability", "text")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "The most confident wrong predictions."),))
