"""Classification of texts or pairs of texts: one label, or any number of labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from lightbert.data.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks import metrics
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.kinds.kind import (
    Cell,
    Finding,
    LabelledKind,
    Outputs,
    Prediction,
    Table,
    calibration_finding,
    example_fields,
    label_name,
    rates_finding,
    softmax,
)

_MAX_MATRIX_LABELS = 12
_MAX_PAIRS = 20
_THRESHOLDS = tuple(step / 100 for step in range(2, 99, 2))


@dataclass(frozen=True)
class Classify(LabelledKind[Example]):
    """Labels in the order of the head's outputs; in binary tasks the second label is the positive class."""

    name: ClassVar[str] = "classify"
    title: ClassVar[str] = "single-label classification"
    heads: ClassVar[tuple[str, ...]] = ("classify",)
    default_metric: ClassVar[str] = "accuracy"

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
        logits = np.concatenate([row for (row,) in outputs]).reshape(len(outputs), -1)  # [N, C]
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
        true = [str(example.label) for example in examples]
        predicted = [prediction["label"] for prediction in predictions]
        result = {"accuracy": metrics.accuracy(true, predicted)}
        if len(self.labels) == 2:
            result["f1"] = metrics.f1(true, predicted, self.labels[1])
        else:
            result["macro_f1"] = metrics.macro_f1(true, predicted)
        return result | {"mcc": metrics.matthews(true, predicted)}

    def baseline(self, train: Features, examples: Sequence[Example]) -> list[Prediction]:
        """The most frequent label of the training data."""
        assert train.targets is not None
        counts = np.bincount(train.targets, minlength=len(self.labels))
        return [{"label": self.labels[int(counts.argmax())]}] * len(examples)

    def only_label(self, predictions: Sequence[Prediction]) -> str:
        """The label that all predictions have."""
        labels = {prediction["label"] for prediction in predictions}
        return str(labels.pop()) if len(labels) == 1 else ""

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Rates by label, confusion matrix, calibration, and the most confident errors."""
        true = [str(example.label) for example in examples]
        predicted = [str(prediction["label"]) for prediction in predictions]
        # The squared distance between the probabilities and the truth, summed over the labels, in [0, 2] (Brier 1950).
        squares = [
            float(sum((p - (label == name)) ** 2 for name, p in prediction["probabilities"].items()))
            for label, prediction in zip(true, predictions, strict=True)
        ]
        errors = [
            {
                **example_fields(example),
                "label": example.label,
                "predicted": prediction["label"],
                "probability": prediction["probability"],
            }
            for example, prediction in zip(examples, predictions, strict=True)
            if example.label != prediction["label"]
        ]
        return [
            rates_finding(label_counts(true, predicted, self.labels)),
            self._confusion(true, predicted),
            calibration_finding(
                [prediction["probability"] for prediction in predictions],
                [a == b for a, b in zip(true, predicted, strict=True)],
                squares,
                "Probability of the predicted label, and whether it is correct",
            ),
            Finding.of_errors(
                sorted(errors, key=lambda error: -error["probability"])[:worst],
                {"label": "true", "predicted": "predicted", "probability": "probability", "text": "text"},
                "The most confident wrong predictions.",
            ),
        ]

    def _confusion(self, true: Sequence[str], predicted: Sequence[str]) -> Finding:
        counts = metrics.confusion(true, predicted, self.labels)
        table = confused_pairs(true, predicted)
        if len(self.labels) <= _MAX_MATRIX_LABELS:
            rows: list[tuple[Cell, ...]] = [(label, *row) for label, row in zip(self.labels, counts, strict=True)]
            table = Table("Confusion matrix", ("true \\ predicted", *self.labels), rows)
        return Finding("confusion", {"labels": list(self.labels), "counts": counts}, (table,))


def label_counts(
    true: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> dict[str, tuple[int, int, int]]:
    """True positives, predictions and true occurrences of every label, including labels that don't occur."""
    right = Counter(a for a, b in zip(true, predicted, strict=True) if a == b)
    predictions, occurrences = Counter(predicted), Counter(true)
    return {label: (right[label], predictions[label], occurrences[label]) for label in labels}


def confused_pairs(true: Sequence[str], predicted: Sequence[str]) -> Table:
    """The most frequently confused pairs of labels."""
    pairs = Counter((a, b) for a, b in zip(true, predicted, strict=True) if a != b)
    rows = [(label, other, count) for (label, other), count in pairs.most_common(_MAX_PAIRS)]
    return Table("Most confused", ("true", "predicted", "count"), rows)


@dataclass(frozen=True)
class Labels(LabelledKind[Example]):
    """Independent binary labels; a label is predicted if its probability is above the threshold."""

    threshold: float = 0.5

    name: ClassVar[str] = "labels"
    title: ClassVar[str] = "multi-label classification"
    heads: ClassVar[tuple[str, ...]] = ("classify",)
    default_metric: ClassVar[str] = "micro_f1"

    @classmethod
    def parse(cls, cell: Any, separator: str) -> tuple[str, ...]:
        """The distinct labels of a cell; may be empty."""
        parts = [part for part in cell.split(separator) if part.strip()] if isinstance(cell, str) else cell
        return tuple(dict.fromkeys(label_name(part) for part in (parts if isinstance(parts, list) else [parts])))

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode examples; the target of a row is a 0/1 vector over the labels."""
        complete = bool(examples) and all(example.label is not None for example in examples)
        targets = np.stack([self._target(example) for example in examples]) if complete else None
        return text_features(examples, encoder, targets)

    def _target(self, example: Example) -> np.ndarray[Any, Any]:
        chosen = _label_set(example)
        for label in chosen:
            if label not in self.labels:
                raise unknown("label", label, self.labels)
        return np.array([label in chosen for label in self.labels], np.float32)

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """The labels with a probability above the threshold, and the probabilities of all labels."""
        if not outputs:
            return []
        logits = np.concatenate([row for (row,) in outputs]).reshape(len(outputs), -1)  # [N, C]
        # The sigmoid in a form that cannot overflow.
        probabilities = (0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))).tolist()
        return self.decide([{"probabilities": dict(zip(self.labels, row, strict=True))} for row in probabilities])

    def decide(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Choose the labels by their probabilities."""
        return [
            {
                "labels": [label for label, p in prediction["probabilities"].items() if p > self.threshold],
                "probabilities": prediction["probabilities"],
            }
            for prediction in predictions
        ]

    def tune(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> "Labels":
        """Choose the threshold with the best micro F1; among equal ones the nearest to 0.5."""
        probabilities = np.array([list(prediction["probabilities"].values()) for prediction in predictions])
        true = np.array([self._target(example) for example in examples]) > 0
        scores = {}
        for threshold in _THRESHOLDS:
            chosen = probabilities > threshold
            scores[threshold] = 2 * (true & chosen).sum() / max(1, true.sum() + chosen.sum())
        best = max(_THRESHOLDS, key=lambda threshold: (scores[threshold], -abs(threshold - 0.5)))
        return replace(self, threshold=best)

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Micro F1, macro F1, and the fraction of examples whose label set is exactly right."""
        true, predicted = self._label_sets(examples, predictions)
        counts = self._counts(true, predicted)
        scores = [2 * hits / (said + are) if said + are else 0.0 for hits, said, are in counts.values()]
        hits, said, are = np.array(list(counts.values())).sum(axis=0).tolist()
        return {
            "micro_f1": 2 * hits / (said + are) if said + are else 0.0,
            "macro_f1": float(np.mean(scores)),
            "accuracy": float(np.mean([a == b for a, b in zip(true, predicted, strict=True)])),
        }

    def _label_sets(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> tuple[list[set[str]], list[set[str]]]:
        return [_label_set(example) for example in examples], [set(row["labels"]) for row in predictions]

    def _counts(self, true: Sequence[set[str]], predicted: Sequence[set[str]]) -> dict[str, tuple[int, int, int]]:
        """True positives, predictions and true occurrences of every label."""
        return {
            label: (
                sum(label in a and label in b for a, b in zip(true, predicted, strict=True)),
                sum(label in names for names in predicted),
                sum(label in names for names in true),
            )
            for label in self.labels
        }

    def baseline(self, train: Features, examples: Sequence[Example]) -> list[Prediction]:
        """The labels of more than half of the training examples; if there are none, the most frequent label."""
        assert train.targets is not None
        shares = train.targets.mean(axis=0)
        threshold = min(0.5, float(shares.max()) - 1e-6)
        chosen = [label for label, share in zip(self.labels, shares, strict=True) if share > threshold]
        return [{"labels": chosen}] * len(examples)

    def only_label(self, predictions: Sequence[Prediction]) -> str:
        """The labels that all predictions have."""
        labels = {", ".join(prediction["labels"]) or "no label" for prediction in predictions}
        return labels.pop() if len(labels) == 1 else ""

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Rates by label, calibration, and the most confident errors: each label of an example is one decision."""
        true, predicted = self._label_sets(examples, predictions)
        confidences, correct, errors = [], [], []
        for example, prediction, is_true, is_said in zip(examples, predictions, true, predicted, strict=True):
            for label, probability in prediction["probabilities"].items():
                confidences.append(probability if label in is_said else 1 - probability)
                correct.append((label in is_true) == (label in is_said))
                if not correct[-1]:
                    decision = {"label": label, "true": label in is_true, "confidence": confidences[-1]}
                    errors.append({**example_fields(example), **decision})
        worst_errors = sorted(errors, key=lambda error: -error["confidence"])[:worst]
        finding = Finding.of_errors(
            [{**error, "error": "false negative" if error["true"] else "false positive"} for error in worst_errors],
            {"label": "label", "error": "error", "confidence": "confidence", "text": "text"},
            "The most confident wrong decisions.",
        )
        return [
            rates_finding(self._counts(true, predicted)),
            calibration_finding(
                confidences,
                correct,
                [(confidence - hit) ** 2 for confidence, hit in zip(confidences, correct, strict=True)],
                "Probability of each decision for or against a label, and whether it is correct",
            ),
            replace(finding, value=worst_errors),
        ]


def _label_set(example: Example) -> set[str]:
    match example.label:
        case tuple(labels):
            return set(labels)
        case str(label):
            return {label}
    raise InputError(f"a multi-label example requires a tuple of names as its label, got {example.label!r}")
