"""The interface of a kind of task, such as classification or tagging. Each kind is a subclass in its own folder."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.tasks.kinds.findings import Finding
from lightbert.tasks.texts import TextEncoder

if TYPE_CHECKING:
    from torch import nn

E = TypeVar("E")

Prediction = dict[str, Any]
"""The prediction for one example, as JSON-serializable values."""

Outputs = list[tuple[NDArray[Any], ...]]
"""The outputs of a head for each row of the features, in order, without padding."""


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities over the last dimension, in double precision."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


@dataclass(frozen=True)
class Kind(ABC, Generic[E]):
    """Converts examples to features and head outputs to predictions, and computes metrics.

    All fields are plain values: ``description`` is saved with the model, and ``kind_of`` restores the kind from it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def head(self) -> str:
        """The head that the kind uses: a key of ``model.heads``."""

    def head_settings(self) -> dict[str, Any]:
        """Arguments for ``add_head`` that follow from the kind, such as the number of labels."""
        return {}

    def description(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, plus the key "kind"."""
        return {"kind": self.name, **asdict(self)}

    @abstractmethod
    def features(self, examples: Sequence[E], encoder: TextEncoder) -> Features:
        """Encode examples. Targets are set if all labels are known; ``sources`` maps each row to its example."""

    @abstractmethod
    def predictions(self, examples: Sequence[E], features: Features, outputs: Outputs) -> list[Prediction]:
        """Convert head outputs to one prediction per example, in order."""

    @abstractmethod
    def metrics(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Compute the metrics; the first one is the main metric. Percentages are given as fractions of 1."""

    @abstractmethod
    def findings(self, examples: Sequence[E], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Analyse the errors beyond the metrics, with the ``worst`` largest errors."""

    def baseline(self, train: Features, examples: Sequence[E]) -> list[Prediction]:
        """Predict examples without reading them, such as the most frequent label of the training data; [] = none."""
        return []

    def metric_names(self, train: Features, examples: Sequence[E]) -> tuple[str, ...]:
        """The metrics of these examples, found without a model: those of the baseline."""
        return tuple(self.metrics(examples, self.baseline(train, examples)))

    def only_label(self, predictions: Sequence[Prediction]) -> str:
        """The label that all predictions have; "" if they differ, or if the kind has no labels."""
        return ""

    def most_tokens(self, length: int) -> int:
        """The tokens beyond which a text, or a question, is truncated; length: the tokens of a row."""
        return length

    def tune(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> "Kind[E]":
        """Choose settings, such as a threshold, from the predictions of a trained model. Most kinds have none."""
        return self

    def fold_into(self, head: "nn.Module") -> "Kind[E]":
        """Fold output scaling into the weights of the head. Most kinds have none."""
        return self


@dataclass(frozen=True)
class LabelledKind(Kind[E]):
    """A kind whose head has one output per label, in this order."""

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.labels)) < 2 or len(set(self.labels)) != len(self.labels):
            raise InputError(f"labels must be at least two distinct names, got {list(self.labels)}")

    def head_settings(self) -> dict[str, Any]:
        """The number of labels."""
        return {"labels": len(self.labels)}
