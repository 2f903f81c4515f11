"""The findings of a kind of task: what an evaluation shows beside the metrics."""

from collections.abc import Sequence
from typing import Any

from lightbert.tasks.kinds.classify.findings import find_in_labels
from lightbert.tasks.kinds.classify.kind import Classify
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.kinds.labels.findings import find_in_sets
from lightbert.tasks.kinds.labels.kind import Labels
from lightbert.tasks.kinds.regress.findings import find_in_numbers
from lightbert.tasks.kinds.regress.kind import Regress
from lightbert.tasks.kinds.spans.findings import find_in_answers
from lightbert.tasks.kinds.spans.kind import Spans
from lightbert.tasks.kinds.tokens.findings import find_in_tags
from lightbert.tasks.kinds.tokens.kind import Tokens


def findings(
    kind: Kind[Any], examples: Sequence[Any], predictions: Sequence[Prediction], worst: int = 20
) -> list[Finding]:
    """Analyse predictions of examples whose answers are known; `worst` is how many of the largest errors to show."""
    match kind:
        case Classify():
            return find_in_labels(examples, predictions, kind.labels, worst)
        case Labels():
            return find_in_sets(examples, predictions, kind.labels, worst)
        case Regress():
            return find_in_numbers(examples, predictions, worst)
        case Tokens():
            return find_in_tags(examples, predictions, kind.labels, worst)
        case Spans():
            return find_in_answers(examples, predictions, worst)
    return []
