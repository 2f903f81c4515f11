"""What there is to see in sets of labels: each label's own rates, and the decisions that were surely wrong."""

from collections.abc import Sequence
from typing import NamedTuple

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.calibration import calibration_finding
from lightbert.tasks.kinds.findings.finding import Finding, Table, example_fields, example_line
from lightbert.tasks.kinds.findings.rates import Rates, rates_finding
from lightbert.tasks.kinds.kind import Prediction


class Decision(NamedTuple):
    """One label of one example: whether it holds, whether the model said so, and the probability of that answer."""

    example: Example
    label: str
    true: bool
    said: bool
    confidence: float

    @property
    def right(self) -> bool:
        """Whether the model said what holds."""
        return self.true == self.said


def find_in_sets(
    examples: Sequence[Example], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """The findings of a multi-label task, in which every label of every example is a decision of its own."""
    decisions = [
        decision(example, prediction, label)
        for example, prediction in zip(examples, predictions, strict=True)
        for label in labels
    ]
    return [
        rates_finding({label: _rates([each for each in decisions if each.label == label]) for label in labels}),
        calibration_finding(
            [each.confidence for each in decisions],
            [each.right for each in decisions],
            [(each.confidence - each.right) ** 2 for each in decisions],
            "The probability of each decision for or against a label, and whether it is right",
        ),
        _most_wrong(decisions, worst),
    ]


def decision(example: Example, prediction: Prediction, label: str) -> Decision:
    """What was decided about one label."""
    gold = example.label if isinstance(example.label, tuple) else (example.label,)
    said = label in prediction["labels"]
    probability = prediction["probabilities"][label]
    return Decision(example, label, label in gold, said, probability if said else 1 - probability)


def _rates(decisions: Sequence[Decision]) -> Rates:
    return Rates.of(
        right=sum(each.true and each.said for each in decisions),
        said=sum(each.said for each in decisions),
        true=sum(each.true for each in decisions),
    )


def _most_wrong(decisions: Sequence[Decision], worst: int) -> Finding:
    wrong = sorted((each for each in decisions if not each.right), key=lambda each: -each.confidence)[:worst]
    value = [
        {**example_fields(each.example), "label": each.label, "true": each.true, "confidence": each.confidence}
        for each in wrong
    ]
    rows = [
        (each.label, "overlooked" if each.true else "not there", each.confidence, example_line(each.example))
        for each in wrong
    ]
    columns = ("label", "mistake", "confidence", "text")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "The surest of the wrong decisions."),))
