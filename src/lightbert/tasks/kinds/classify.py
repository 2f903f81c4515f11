"""Classification of texts or pairs of texts: one label, or any number of labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

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
    Rates,
    Table,
    calibration_finding,
    example_fields,
    example_line,
    rates_finding,
    softmax,
)
from lightbert.tasks.metrics import confusion


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


_THRESHOLDS = tuple(step / 100 for step in range(2, 99, 2))


@dataclass(frozen=True)
class Labels(LabelledKind[Example]):
    """Independent binary labels; a label is predicted if its probability is above the threshold."""

    threshold: float = 0.5

    name: ClassVar[str] = "labels"

    @property
    def head(self) -> str:
        """The classification head, with a sigmoid per output."""
        return "classify"

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
        logits = np.concatenate([each for (each,) in outputs]).reshape(len(outputs), -1)  # [N, C]
        # The sigmoid in a form that cannot overflow.
        probabilities = (0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))).tolist()
        return self.decide([{"probabilities": dict(zip(self.labels, row, strict=True))} for row in probabilities])

    def decide(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Choose the labels by their probabilities."""
        chosen = ([label for label, p in each["probabilities"].items() if p > self.threshold] for each in predictions)
        return [
            {"labels": names, "probabilities": each["probabilities"]}
            for names, each in zip(chosen, predictions, strict=True)
        ]

    def tune(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> "Labels":
        """Choose the threshold with the best micro F1; among equal ones the nearest to 0.5."""
        probabilities = np.array([list(each["probabilities"].values()) for each in predictions])
        gold = np.array([self._target(example) for example in examples]) > 0
        scores = {}
        for threshold in _THRESHOLDS:
            chosen = probabilities > threshold
            scores[threshold] = 2 * (gold & chosen).sum() / max(1, gold.sum() + chosen.sum())
        best = max(_THRESHOLDS, key=lambda threshold: (scores[threshold], -abs(threshold - 0.5)))
        return replace(self, threshold=best)

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Micro F1, macro F1, and the fraction of examples whose label set is exactly right."""
        gold = [_label_set(example) for example in examples]
        predicted = [set(prediction["labels"]) for prediction in predictions]
        hits = {
            label: sum(label in a and label in b for a, b in zip(gold, predicted, strict=True)) for label in self.labels
        }
        sizes = {label: sum(label in each for each in [*gold, *predicted]) for label in self.labels}
        each = [2 * hits[label] / sizes[label] if sizes[label] else 0.0 for label in self.labels]
        total = sum(sizes.values())
        return {
            "micro_f1": 2 * sum(hits.values()) / total if total else 0.0,
            "macro_f1": float(np.mean(each)),
            "accuracy": float(np.mean([a == b for a, b in zip(gold, predicted, strict=True)])),
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
        found = {", ".join(prediction["labels"]) or "no label" for prediction in predictions}
        return found.pop() if len(found) == 1 else ""

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Rates by label, calibration, and the most confident errors."""
        return multilabel_findings(examples, predictions, self.labels, worst)


def _label_set(example: Example) -> set[str]:
    match example.label:
        case tuple(labels):
            return set(labels)
        case str(label):
            return {label}
    raise InputError(f"a multi-label example requires a tuple of names as its label, got {example.label!r}")


class Decision(NamedTuple):
    """One label of one example: whether it is true and predicted, and the probability of that decision."""

    example: Example
    label: str
    true: bool
    predicted: bool
    confidence: float

    @property
    def correct(self) -> bool:
        """Whether the decision is correct."""
        return self.true == self.predicted


def multilabel_findings(
    examples: Sequence[Example], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """Analyse predicted label sets; every label of every example is one binary decision."""
    decisions = [
        decision(example, prediction, label)
        for example, prediction in zip(examples, predictions, strict=True)
        for label in labels
    ]
    return [
        rates_finding({label: _rates([each for each in decisions if each.label == label]) for label in labels}),
        calibration_finding(
            [each.confidence for each in decisions],
            [each.correct for each in decisions],
            [(each.confidence - each.correct) ** 2 for each in decisions],
            "Probability of each decision for or against a label, and whether it is correct",
        ),
        _most_wrong_decisions(decisions, worst),
    ]


def decision(example: Example, prediction: Prediction, label: str) -> Decision:
    """The decision about one label."""
    gold = example.label if isinstance(example.label, tuple) else (example.label,)
    predicted = label in prediction["labels"]
    probability = prediction["probabilities"][label]
    return Decision(example, label, label in gold, predicted, probability if predicted else 1 - probability)


def _rates(decisions: Sequence[Decision]) -> Rates:
    return Rates.of(
        right=sum(each.true and each.predicted for each in decisions),
        said=sum(each.predicted for each in decisions),
        true=sum(each.true for each in decisions),
    )


def _most_wrong_decisions(decisions: Sequence[Decision], worst: int) -> Finding:
    wrong = sorted((each for each in decisions if not each.correct), key=lambda each: -each.confidence)[:worst]
    value = [
        {**example_fields(each.example), "label": each.label, "true": each.true, "confidence": each.confidence}
        for each in wrong
    ]
    rows = [
        (each.label, "false negative" if each.true else "false positive", each.confidence, example_line(each.example))
        for each in wrong
    ]
    columns = ("label", "error", "confidence", "text")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "The most confident wrong decisions."),))
