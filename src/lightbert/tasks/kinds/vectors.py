"""Vectors of texts: pairs of texts that belong together, pairs with a score, or texts alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.nn.pooling_settings import PROJECTION
from lightbert.tasks import metrics
from lightbert.tasks.example import Example, TextEncoder
from lightbert.tasks.kinds.kind import Finding, Kind, Outputs, Prediction


@dataclass(frozen=True, slots=True)
class Triple(Example):
    """A pair of texts whose label is its weight, with a text that must not be near the first one."""

    negative: str = ""


@dataclass(frozen=True)
class Vectors(Kind[Example]):
    """Vectors that are near if texts belong together ("pairs", "texts") or have a high score ("graded").

    low, high: the range of the scores. prompts: what precedes first and second texts.
    """

    loss: Literal["pairs", "graded", "texts"]
    texts: int = 2
    """The number of texts of an example."""
    low: float = 0.0
    high: float = 1.0
    prompts: tuple[str, str] = ("", "")
    name: ClassVar[str] = "vectors"
    title: ClassVar[str] = "vectors of texts"
    heads: ClassVar[tuple[str, ...]] = (PROJECTION,)
    """The head of a projection; a model without one has none."""

    @property
    def ranks(self) -> bool:
        """Whether a prediction is the rank of the second text among those of all examples, or else a cosine."""
        return self.loss == "pairs"

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode the texts of each example one after another; targets are its number and the lengths of its texts."""
        columns = [
            encoder.pieces([self.prompts[0] + example.text for example in examples]),
            encoder.pieces([self.prompts[1] + (example.text_b or example.text) for example in examples]),
        ]
        if self.texts == 3:
            columns.append(encoder.pieces([self.prompts[1] + getattr(example, "negative", "") for example in examples]))
        rows, lengths, cut = [], [], 0
        for pieces in zip(*columns, strict=True):
            texts = [encoder.row(each.ids)[0] for each in pieces]
            cut += any(len(each.ids) + 2 > len(text) for each, text in zip(pieces, texts, strict=True))
            rows.append([token for text in texts for token in text])
            lengths.append([len(text) for text in texts])
        # A dev file of single texts has no numbers.
        numbers = np.array([1.0 if example.label is None else float(example.label) for example in examples])  # type: ignore[arg-type]
        scaled = (numbers - self.low) / (self.high - self.low) if self.loss == "graded" else numbers
        targets = np.column_stack([scaled, np.array(lengths).reshape(len(rows), self.texts)]).astype(np.float32)
        return Features.of(rows, [len(row) for row in rows], targets=targets, cut=cut)

    def predictions_of(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> list[Prediction]:
        """The predictions for vectors of length 1 of first and second texts, each [N, E]."""
        cosines = (first * second).sum(1)
        if not self.ranks:
            return [{"cosine": cosine} for cosine in cosines.tolist()]
        ranks = [1 + int((row @ second.T > own).sum()) for row, own in zip(first, cosines - 1e-6, strict=True)]
        # The text itself is above its own cosine, less a rounding error.
        return [{"rank": max(1, rank - 1)} for rank in ranks]

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """Not by rows: a row has several texts."""
        raise NotImplementedError

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """MRR and accuracy of the ranks, or Spearman's and Pearson's correlation of cosines and scores."""
        if self.ranks:
            ranks = np.array([prediction["rank"] for prediction in predictions])
            return {"mrr": float((1 / ranks).mean()), "accuracy": float((ranks == 1).mean())}
        cosines = [float(prediction["cosine"]) for prediction in predictions]
        scores: list[Any] = [example.label for example in examples]
        return {"spearman": metrics.spearman(scores, cosines), "pearson": metrics.pearson(scores, cosines)}

    def metric_names(self, train: Features, examples: Sequence[Example]) -> tuple[str, ...]:
        """The names of the metrics."""
        return ("mrr", "accuracy") if self.ranks else ("spearman", "pearson")

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """None."""
        return []
