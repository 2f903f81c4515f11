"""The interface of a kind of task, the tables of its error analysis, and `Task`, a kind with its data."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example, Examples, TextEncoder

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from torch import nn

E = TypeVar("E")

Prediction = dict[str, Any]
"""The prediction for one example, as JSON-serializable values."""

Outputs = list[tuple[NDArray[Any], ...]]
"""The outputs of a head for each row of the features, in order, without padding."""

Label = str | float | tuple[str, ...]

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


def _escape(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


@dataclass(frozen=True)
class Finding:
    """A key and value for the JSON report, and the tables that display it."""

    key: str
    value: Any
    tables: tuple[Table, ...]

    @classmethod
    def of_errors(cls, records: Sequence[Mapping[str, Any]], columns: Mapping[str, str], note: str) -> "Finding":
        """The worst errors: records, and a table with a title for each of the fields to display."""
        pairs = [{**row, "text": f"{row['text']} ⏐ {row['text_b']}"} if "text_b" in row else row for row in records]
        rows = [tuple(row[name] for name in columns) for row in pairs]
        return cls("most_wrong", list(records), (Table("Most wrong", tuple(columns.values()), rows, note),))


def example_fields(example: Example) -> dict[str, Any]:
    """The id and the texts of an example, as plain values."""
    values = {"id": example.id, "text": example.text}
    return values if example.text_b is None else {**values, "text_b": example.text_b}


def rates_finding(counts: Mapping[str, Sequence[int]], *, key: str = "labels", title: str = "Labels") -> Finding:
    """Report precision, recall and F1 of every label, 0 where undefined.

    counts: for each label the number of true positives, of predictions, and of true occurrences.
    """
    rates: dict[str, dict[str, Any]] = {
        name: {
            "precision": right / predicted if predicted else 0.0,
            "recall": right / true if true else 0.0,
            "f1": 2 * right / (predicted + true) if predicted + true else 0.0,
            "said": predicted,
            "true": true,
            "right": right,
        }
        for name, (right, predicted, true) in counts.items()
    }
    rows = [(name, *list(values.values())[:5]) for name, values in rates.items()]
    columns = (key.removesuffix("s"), "precision", "recall", "F1", "predicted", "true")
    return Finding(key, rates, (Table(title, columns, rows),))


_BAR = 20


def calibration(
    confidences: Sequence[float], correct: Sequence[bool], bins: int = 15
) -> tuple[float, list[dict[str, Any]]]:
    """The expected calibration error (Guo et al. 2017, Eq. 3), and bins of equal width over (0, 1].

    The error is the mean absolute difference between confidence and accuracy, weighted by the size of the bins. Each
    bin has its range, count, mean confidence and accuracy, 0 if it is empty.
    """
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
    columns = {"low": edges[:-1], "high": edges[1:], "count": counts, "confidence": confidence, "accuracy": accuracy}
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
    return float((counts * np.abs(confidence - accuracy)).sum() / len(p)), rows


def calibration_finding(
    confidences: Sequence[float], correct: Sequence[bool], squares: Sequence[float] | None, meaning: str
) -> Finding:
    """Report calibration by bin.

    squares: squared errors of the probabilities; their mean is the Brier score.
    meaning: what the confidence refers to and what counts as correct, for the caption.
    """
    error, bins = calibration(confidences, correct)
    value = {"error": error, "bins": bins}
    note = f"expected calibration error {error:.4f}"
    if squares is not None:
        value["brier"] = sum(squares) / len(squares)
        note += f", Brier score {value['brier']:.4f}"
    rows = [
        (f"{row['low']:.2f}–{row['high']:.2f}", row["count"], row["confidence"], row["accuracy"], _reliability_bar(row))
        for row in bins
        if row["count"]
    ]
    columns = ("confidence", "count", "mean confidence", "accuracy", "accuracy ─, confidence │")
    return Finding("calibration", value, (Table("Calibration", columns, rows, f"{meaning}: {note}"),))


def _reliability_bar(row: Mapping[str, float]) -> str:
    """A bar as long as the accuracy, with a mark at the confidence."""
    end, mark = round(row["accuracy"] * _BAR), min(round(row["confidence"] * _BAR), _BAR - 1)
    line = ["─" if index < end else "·" for index in range(_BAR)]
    line[mark] = "│"
    return "".join(line)


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
    title: ClassVar[str]
    """What the kind is called in a model card."""
    heads: ClassVar[tuple[str, ...]]
    """The heads that can be used, each a key of ``model.heads``, in the order of preference."""
    default_metric: ClassVar[str] = ""
    inputs: ClassVar[tuple[type, ...]] = (Example,)
    """The types of its examples."""
    requires: ClassVar[str] = "a text"
    """What an example is, in error messages."""
    one_per_text: ClassVar[bool] = True
    """Whether the head has one output per text, instead of one per token."""

    @property
    def head(self) -> str:
        """The head that is used."""
        return self.heads[0]

    @property
    def metric(self) -> str:
        """The main metric."""
        if not self.default_metric:
            raise InputError(f"custom files don't support tasks of kind {self.name!r}; give the name of the task")
        return self.default_metric

    @classmethod
    def for_head(cls, head: str, labels: Callable[[], tuple[str, ...]], like: "Kind[Any] | None") -> Self:
        """The kind of a model that doesn't specify it.

        labels: returns the names of the outputs. like: the kind of the task to evaluate.
        """
        return cls()

    @classmethod
    def parse(cls, cell: Any, separator: str) -> Label:
        """Parse a cell of the label column; the message of a ValueError continues "line 7 of 'my.csv'"."""
        return label_name(cell)

    @classmethod
    def of_labels(cls, labels: Sequence[Any], path: str) -> Self:
        """The kind of a training file, from its labels."""
        raise NotImplementedError

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

    @classmethod
    def for_head(cls, head: str, labels: Callable[[], tuple[str, ...]], like: Kind[Any] | None) -> Self:
        """A kind with the labels of the model."""
        return cls(labels())

    @classmethod
    def of_labels(cls, labels: Sequence[Any], path: str) -> Self:
        """A kind with the sorted labels; sets of labels are joined."""
        names = sort_labels([name for label in labels for name in (label if isinstance(label, tuple) else [label])])
        if len(names) < 2:
            raise InputError(f"training requires at least two labels, got {', '.join(names) or 'none'} in '{path}'")
        return cls(names)

    def head_settings(self) -> dict[str, Any]:
        """The number of labels."""
        return {"labels": len(self.labels)}


def label_name(cell: Any) -> str:
    """The name of a class: texts are stripped, 1 and 1.0 become "1", and true becomes "true"."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and not math.isfinite(cell):
        # How tables store missing values.
        raise ValueError(f"has the label {cell}, which must be a finite number")
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if not isinstance(cell, str | int | float):
        raise ValueError(f"has the label {cell!r}, which must be a text or a number")
    if not str(cell).strip():
        raise ValueError("has no label")
    return str(cell).strip()


_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


def parse_number(cell: Any) -> float | None:
    """Parse a cell as a finite number, with a decimal point or comma; None if it isn't one."""
    # float() accepts 1_2.
    if isinstance(cell, bool) or not isinstance(cell, str | int | float) or "_" in str(cell):
        return None
    if isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()):
        cell = cell.replace(",", ".")
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def sort_labels(names: Collection[str]) -> tuple[str, ...]:
    """The distinct names, sorted; numerically if all are numbers, so that 2 comes before 10."""
    if all(parse_number(name) is not None for name in names):
        return tuple(sorted(set(names), key=lambda name: (parse_number(name), name)))
    return tuple(sorted(set(names)))


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
        examples = self.splits[split]()
        return examples if isinstance(examples, Examples) else Examples(examples)
