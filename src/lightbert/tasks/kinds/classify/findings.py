"""What there is to see in predicted labels: what was taken for what, how sure the model was, where it was surest."""

from collections import Counter
from collections.abc import Sequence

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.calibration import calibration_finding
from lightbert.tasks.kinds.findings.finding import Cell, Finding, Table, example_fields, example_line
from lightbert.tasks.kinds.findings.rates import Rates, rates_finding
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.metrics import confusion

_WIDEST_MATRIX = 12
_PAIRS = 20


def find_in_labels(
    examples: Sequence[Example], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """The findings of classification; `labels` are the model's."""
    gold = [str(example.label) for example in examples]
    predicted = [str(prediction["label"]) for prediction in predictions]
    right = [a == b for a, b in zip(gold, predicted, strict=True)]
    return [
        rates_finding(label_rates(gold, predicted, labels)),
        _confusion(gold, predicted, labels),
        calibration_finding(
            [prediction["probability"] for prediction in predictions],
            right,
            [brier(prediction, label) for prediction, label in zip(predictions, gold, strict=True)],
            "The predicted label's probability, and whether it is right",
        ),
        _most_wrong(examples, predictions, worst),
    ]


def brier(prediction: Prediction, gold: str) -> float:
    """The squared distance between the probabilities and the truth, summed over the labels: 0 to 2 (Brier 1950)."""
    return float(sum((p - (label == gold)) ** 2 for label, p in prediction["probabilities"].items()))


def label_rates(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> dict[str, Rates]:
    """The rates of each label, also of those that don't occur."""
    right = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    said, true = Counter(predicted), Counter(gold)
    return {label: Rates.of(right=right[label], said=said[label], true=true[label]) for label in labels}


def _confusion(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Finding:
    counts = confusion(gold, predicted, labels)
    value = {"labels": list(labels), "counts": counts}
    if len(labels) <= _WIDEST_MATRIX:
        rows: list[tuple[Cell, ...]] = [(label, *row) for label, row in zip(labels, counts, strict=True)]
        title, columns = "Confusion matrix", ("true \\ predicted", *labels)
        return Finding("confusion", value, (Table(title, columns, rows),))
    return Finding("confusion", value, (confused_pairs(gold, predicted),))


def confused_pairs(gold: Sequence[str], predicted: Sequence[str]) -> Table:
    """Which label was most often taken for which other one."""
    pairs = Counter((a, b) for a, b in zip(gold, predicted, strict=True) if a != b)
    rows = [(true, taken, count) for (true, taken), count in pairs.most_common(_PAIRS)]
    return Table("Most confused", ("true", "taken for", "count"), rows)


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
            "predicted": said["label"],
            "probability": said["probability"],
        }
        for example, said in wrong
    ]
    rows = [(str(example.label), said["label"], said["probability"], example_line(example)) for example, said in wrong]
    columns = ("true", "predicted", "probability", "text")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "The surest of the wrong answers."),))
