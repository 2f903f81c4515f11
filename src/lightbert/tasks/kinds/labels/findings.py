"""Error analysis of multi-label classification: rates by label, calibration, most confident errors."""

from collections.abc import Sequence
from typing import NamedTuple

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.calibration import calibration_finding
from lightbert.tasks.kinds.findings.finding import Finding, Table, example_fields, example_line
from lightbert.tasks.kinds.findings.rates import Rates, rates_finding
from lightbert.tasks.kinds.kind import Prediction


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
        _most_wrong(decisions, worst),
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


def _most_wrong(decisions: Sequence[Decision], worst: int) -> Finding:
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
