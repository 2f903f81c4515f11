"""Error analysis of classification: rates by label, confusion matrix, calibration, most confident errors."""

from collections import Counter
from collections.abc import Sequence

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.calibration import calibration_finding
from lightbert.tasks.kinds.findings.finding import Cell, Finding, Table, example_fields, example_line
from lightbert.tasks.kinds.findings.rates import Rates, rates_finding
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.metrics import confusion

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
