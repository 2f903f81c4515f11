"""The interface of a kind of task, what it reports, and a task: a kind with its data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example, Examples, TextEncoder

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from torch import nn


Cell = str | int | float | None

_MAX_CELL_LENGTH = 240


@dataclass(frozen=True)
class Table:
    """A titled table that renders as Markdown or in a terminal."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""

    def to_markdown(self) -> str:
        """A heading, the note and a pipe table; "None." if the table is empty."""
        if not self.rows:
            return f"## {self.title}\n\nNone."
        marks = ["---:" if self._is_number(column) else "---" for column in range(len(self.columns))]
        body = [[_escape(format_cell(cell)) for cell in row] for row in self.rows]
        lines = [f"| {' | '.join(cells)} |" for cells in (map(_escape, self.columns), marks, *body)]
        return "\n\n".join(part for part in (f"## {self.title}", self.note, "\n".join(lines)) if part)

    def __rich__(self) -> "RichTable":
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title, title_justify="left", caption_justify="left")
        table.caption = (self.note or None) if self.rows else "None."
        for index, column in enumerate(self.columns):
            table.add_column(Text(column), justify="right" if self._is_number(index) else "left", overflow="fold")
        for row in self.rows:
            # As Text, because user data may contain rich markup.
            table.add_row(*(Text(format_cell(cell)) for cell in row))
        return table

    def _is_number(self, column: int) -> bool:
        return all(isinstance(row[column], int | float | None) for row in self.rows)


@dataclass(frozen=True)
class Finding:
    """A key and value for the JSON report, and the tables that display it."""

    key: str
    value: Any
    tables: tuple[Table, ...]


def format_cell(cell: Cell) -> str:
    """Format a cell on one line: four decimals, thousands separators, long texts truncated."""
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:.4f}"
        case int():
            return f"{cell:,}"
    line = " ".join(cell.split())
    return line if len(line) <= _MAX_CELL_LENGTH else f"{line[: _MAX_CELL_LENGTH - 1]}…"


def example_fields(example: Example) -> dict[str, Any]:
    """The id and the texts of an example, as plain values."""
    values = {"id": example.id, "text": example.text}
    return values if example.text_b is None else {**values, "text_b": example.text_b}


def example_line(example: Example) -> str:
    """The text of an example, or both texts of a pair, on one line."""
    return example.text if example.text_b is None else f"{example.text} ⏐ {example.text_b}"


def _escape(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


@dataclass(frozen=True)
class Rates:
    """Precision, recall and F1 of one label, 0 where undefined, and the counts behind them."""

    precision: float
    recall: float
    f1: float
    said: int
    true: int
    right: int

    @classmethod
    def of(cls, *, right: int, said: int, true: int) -> "Rates":
        """Compute from counts: `said` predictions of the label, `true` occurrences, `right` true positives."""
        return cls(
            precision=right / said if said else 0.0,
            recall=right / true if true else 0.0,
            f1=2 * right / (said + true) if said + true else 0.0,
            said=said,
            true=true,
            right=right,
        )


def rates_finding(rates: Mapping[str, Rates], *, key: str = "labels", title: str = "Labels") -> Finding:
    """Report the rates of every label, one row each."""
    rows = [(name, each.precision, each.recall, each.f1, each.said, each.true) for name, each in rates.items()]
    columns = (key.removesuffix("s"), "precision", "recall", "F1", "predicted", "true")
    return Finding(key, {name: asdict(each) for name, each in rates.items()}, (Table(title, columns, rows),))


_BAR = 20


@dataclass(frozen=True)
class Bin:
    """The predictions with a confidence in (low, high]; the means are 0 for an empty bin."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Bins of equal width over (0, 1], and the expected calibration error (Guo et al. 2017, Eq. 3)."""

    error: float
    """The mean absolute difference between confidence and accuracy, weighted by the size of the bins."""
    bins: tuple[Bin, ...]


def calibration(confidences: Sequence[float], correct: Sequence[bool], bins: int = 15) -> Calibration:
    """Compare the confidence of predictions with their accuracy, in bins of equal width."""
    if bins < 1:
        raise InputError(f"bins must be >= 1, got {bins}")
    if not len(confidences) or len(confidences) != len(correct):
        raise InputError(
            f"calibration requires one confidence per prediction, got {len(confidences):,} confidences for "
            f"{len(correct):,} predictions"
        )
    p, hits = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InputError("confidences must be in [0, 1]: give probabilities, not logits")
    edges = np.linspace(0, 1, bins + 1)
    # The first bin also takes a confidence of exactly 0.
    indices = np.clip(np.searchsorted(edges, p, side="left") - 1, 0, bins - 1)
    counts = np.bincount(indices, minlength=bins)
    divisors = np.maximum(counts, 1)
    confidence = np.bincount(indices, weights=p, minlength=bins) / divisors
    accuracy = np.bincount(indices, weights=hits, minlength=bins) / divisors
    rows = zip(edges[:-1], edges[1:], counts, confidence, accuracy, strict=True)
    return Calibration(
        error=float((counts * np.abs(confidence - accuracy)).sum() / len(p)),
        bins=tuple(Bin(float(low), float(high), int(n), float(c), float(a)) for low, high, n, c, a in rows),
    )


def calibration_finding(
    confidences: Sequence[float], correct: Sequence[bool], squares: Sequence[float] | None, meaning: str
) -> Finding:
    """Report calibration by bin.

    squares: squared errors of the probabilities; their mean is the Brier score.
    meaning: what the confidence refers to and what counts as correct, for the caption.
    """
    result = calibration(confidences, correct)
    value = {"error": result.error, "bins": [asdict(each) for each in result.bins]}
    note = f"expected calibration error {result.error:.4f}"
    if squares is not None:
        value["brier"] = sum(squares) / len(squares)
        note += f", Brier score {value['brier']:.4f}"
    rows = [_row(each) for each in result.bins if each.count]
    columns = ("confidence", "count", "mean confidence", "accuracy", "accuracy ─, confidence │")
    return Finding("calibration", value, (Table("Calibration", columns, rows, f"{meaning}: {note}"),))


def _row(each: Bin) -> tuple[str, int, float, float, str]:
    return (f"{each.low:.2f}–{each.high:.2f}", each.count, each.confidence, each.accuracy, reliability_bar(each))


def reliability_bar(each: Bin) -> str:
    """A bar as long as the accuracy, with a mark at the confidence."""
    end, mark = round(each.accuracy * _BAR), min(round(each.confidence * _BAR), _BAR - 1)
    line = ["─" if index < end else "·" for index in range(_BAR)]
    line[mark] = "│"
    return "".join(line)


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


@dataclass(frozen=True)
class Task:
    """A kind of task with its data."""

    name: str
    kind: Kind[Any]
    splits: Mapping[str, Callable[[], list[Any]]]
    """"train", "dev", "test" and others, such as "dev_mismatched", with a function that reads the split.

    `Examples` count the bad rows that were skipped; in any other list there are none.
    """
    metric: str
    """The metric that ranks runs: ConvBERT's choice for the tasks it reports."""
    symmetric: bool = False
    """Whether pairs are symmetric, so that swapping them doubles the training data."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """How custom files are read, to be saved with a model: `Files.reading`. Empty for named tasks."""

    def examples(self, split: str) -> Examples[Any]:
        """Read one split."""
        if split not in self.splits:
            raise unknown(f"split of the task {self.name!r}", split, self.splits)
        found = self.splits[split]()
        return found if isinstance(found, Examples) else Examples(found)
