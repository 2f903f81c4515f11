"""What can be asked of a model about a text. Each kind of task is one subclass in a file of its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, TypeVar

from numpy.typing import NDArray
from torch import nn

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.texts import TextEncoder

E = TypeVar("E")

Prediction = dict[str, Any]
"""What a model says about one example, as plain values that JSON can hold."""

Outputs = list[tuple[NDArray[Any], ...]]
"""What a head gave for each row of the features, in their order, without padding."""


@dataclass(frozen=True)
class Kind(ABC, Generic[E]):
    """How examples become rows of tokens, how a head's outputs become predictions, and how those are judged.

    A kind is made of plain values only: ``description`` is saved with the model, and ``kind_of`` makes the kind anew
    from it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def head(self) -> str:
        """Which head answers: the key in ``model.heads``."""

    def head_settings(self) -> dict[str, Any]:
        """What ``add_head`` needs beyond the recipe's own settings, such as the number of labels."""
        return {}

    def description(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, with "kind" added."""
        return {"kind": self.name, **asdict(self)}

    @abstractmethod
    def features(self, examples: Sequence[E], encoder: TextEncoder) -> Features:
        """Encode; targets are there when every example's answer is known. A row's ``sources`` says whose it is."""

    @abstractmethod
    def predictions(self, examples: Sequence[E], features: Features, outputs: Outputs) -> list[Prediction]:
        """Turn a head's outputs into one prediction per example, in their order."""

    @abstractmethod
    def metrics(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Judge predictions; the first number is the one that runs are compared by. Shares are between 0 and 1."""

    @abstractmethod
    def findings(self, examples: Sequence[E], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """What an evaluation shows beside the metrics, with so many of the largest errors."""

    def settled(self, examples: Sequence[E], predictions: Sequence[Prediction]) -> "Kind[E]":
        """Choose by a trained model's predictions what can only be chosen then; most kinds have no such thing."""
        return self

    def folded(self, head: nn.Module) -> "Kind[E]":
        """Move into the head's weights what plain outputs would lack; most kinds have no such thing."""
        return self


@dataclass(frozen=True)
class LabelledKind(Kind[E]):
    """A kind whose head has one output per label, in this order."""

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.labels)) < 2 or len(set(self.labels)) != len(self.labels):
            raise InputError(f"labels must be at least two, all different, got {list(self.labels)}")

    def head_settings(self) -> dict[str, Any]:
        """The number of labels."""
        return {"labels": len(self.labels)}
