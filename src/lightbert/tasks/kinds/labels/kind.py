"""Any number of labels for each text or pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lightbert.data.examples.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import LabelledKind, Outputs, Prediction
from lightbert.tasks.kinds.labels.findings import find_in_sets
from lightbert.tasks.texts import TextEncoder, text_features


@dataclass(frozen=True)
class Labels(LabelledKind[Example]):
    """Each label is a question of its own: yes when its probability is above one half."""

    name: ClassVar[str] = "labels"

    @property
    def head(self) -> str:
        """The classification head, whose outputs are read one by one."""
        return "classify"

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode; the targets of a row are 1 where it has the label."""
        complete = bool(examples) and all(example.label is not None for example in examples)
        targets = np.stack([self._marks(example) for example in examples]) if complete else None
        return text_features(examples, encoder, targets)

    def _marks(self, example: Example) -> np.ndarray[Any, Any]:
        chosen = _set(example)
        for label in chosen:
            if label not in self.labels:
                raise unknown("label", label, self.labels)
        return np.array([label in chosen for label in self.labels], np.float32)

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """The labels that are more likely than not, and the probability of each."""
        return [self._prediction(logits) for (logits,) in outputs]

    def _prediction(self, logits: np.ndarray[Any, Any]) -> Prediction:
        # The logistic function in a form that never overflows.
        shares = 0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))
        chosen = [label for label, logit in zip(self.labels, logits, strict=True) if logit > 0]
        return {"labels": chosen, "probabilities": dict(zip(self.labels, shares.tolist(), strict=True))}

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """F1 over all decisions, the mean of the labels' own F1, and how many sets are right to the last label."""
        gold = [_set(example) for example in examples]
        predicted = [set(prediction["labels"]) for prediction in predictions]
        hits = {
            label: sum(label in a and label in b for a, b in zip(gold, predicted, strict=True)) for label in self.labels
        }
        sizes = {label: sum(label in each for each in [*gold, *predicted]) for label in self.labels}
        each = [2 * hits[label] / sizes[label] if sizes[label] else 0.0 for label in self.labels]
        whole = sum(sizes.values())
        return {
            "micro_f1": 2 * sum(hits.values()) / whole if whole else 0.0,
            "macro_f1": float(np.mean(each)),
            "accuracy": float(np.mean([a == b for a, b in zip(gold, predicted, strict=True)])),
        }

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Rates by label, calibration, and the most confident wrong decisions."""
        return find_in_sets(examples, predictions, self.labels, worst)


def _set(example: Example) -> set[str]:
    match example.label:
        case tuple(labels):
            return set(labels)
        case str(label):
            return {label}
    raise InputError(f"{example.label!r} is no set of labels; give a tuple of names")
