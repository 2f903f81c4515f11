"""The report of the comparison with transformers' Trainer: rates and ratios."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

OURS = "lightbert"
PACKED = "lightbert, packed rows"


@dataclass(frozen=True)
class Comparison:
    """Medians of examples per second of each library, and of tokens per second of lightbert's prediction.

    rows: how the runtime puts texts into rows by default, a key of `ragged`.
    """

    model: str
    device: str
    trained: int
    predicted: int
    batch: int
    rounds: int
    ragged_rounds: int
    rows: str
    finetune: dict[str, float]
    predict: dict[str, float]
    ragged: dict[str, float]

    def metrics(self) -> dict[str, float]:
        """The rates relative to the default Trainer, to its fastest setting, and to texts of equal length.

        Those of packed rows are relative to the rows of fine-tuning and prediction that are sorted by length.
        """
        rates, grouped = self.ragged, self.ragged["grouped"]
        return {
            "finetune_ratio": self.finetune[OURS] / self.finetune["Trainer"],
            "finetune_ratio_fastest": self.finetune[OURS] / _fastest(self.finetune),
            "predict_ratio": self.predict[OURS] / self.predict["Trainer"],
            "predict_ratio_fastest": self.predict[OURS] / _fastest(self.predict),
            "ragged_ratio": rates[self.rows] / rates["fixed length"],
            "packed_finetune_ratio": self.finetune[PACKED] / self.finetune[OURS],
            **{f"{name}_predict_ratio": rates[name] / grouped for name in ("packed", "captured") if name in rates},
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"metrics": self.metrics(), **asdict(self)}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        where = f"{self.model}, {self.device}, median of {self.rounds}"
        return Group(
            _table(f"Fine-tuning on {self.trained:,} examples: {where}", "examples/s", self.finetune, OURS),
            _table(f"Prediction of {self.predicted:,} examples", "examples/s", self.predict, OURS),
            _table(f"lightbert's prediction: median of {self.ragged_rounds}", "tokens/s", self.ragged, self.rows),
        )


def _fastest(rates: Mapping[str, float]) -> float:
    return max(rate for name, rate in rates.items() if name not in (OURS, PACKED))


def _table(title: str, unit: str, rates: Mapping[str, float], mine: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column(unit, justify="right")
    table.add_column(f"{mine} relative to it", justify="right")
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.1f}", "" if name == mine else f"{rates[mine] / rate:.2f} ×")
    return table
