"""The report of `pretrain` and `distill`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.train.step import Outcome

_NOT_HELD_OUT = "nothing to measure on; prepare more documents (--documents line), or a larger share (--held-out 0.05)"


@dataclass(frozen=True)
class TrainingReport:
    """The outcome of a run, and where its results are saved."""

    out: Path
    outcome: "Outcome"
    is_main: bool = True
    """Whether this process prints the report; true for one of several."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        outcome = self.outcome
        return {
            "out": str(self.out),
            "model": str(self.out / "final") if outcome.finished else None,
            "step": outcome.step,
            "finished": outcome.finished,
            "tokens_per_second": outcome.tokens_per_second,
            "start_seconds": outcome.start_seconds,
            "metrics": outcome.held_out,
            "verdict": outcome.verdict,
        }

    def __rich__(self) -> "RenderableType":
        outcome = self.outcome
        if not outcome.finished:
            return f"interrupted and saved at step {outcome.step:,}; run the same command again to resume"
        # Metrics of single layers, such as fmt_24, are only logged.
        shown = {name: value for name, value in outcome.held_out.items() if not name[-1].isdigit()}
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in shown.items()) or _NOT_HELD_OUT
        # A resumed run may have had no step left to measure.
        speed = f" at {outcome.tokens_per_second:,.0f} tokens/s" if outcome.tokens_per_second else ""
        lines = [f"{outcome.step:,} steps{speed}; held out: {numbers}", outcome.verdict, f"model: {self.out / 'final'}"]
        return "\n".join(line for line in lines if line)


def draw_curves(out: Path, *, transfer: bool = False, more: Sequence[str] = ()) -> bool:
    """Write ``out/loss.png``, and ``out/transfer.png`` if layers were transferred, or print why it can't.

    more: metrics to plot besides the losses. Returns whether it succeeded.
    """
    from lightbert.analysis.run_log import draw_losses, draw_transfer

    try:
        draw_losses(out / "metrics.jsonl", out / "loss.png", more)
        if transfer:
            draw_transfer(out / "metrics.jsonl", out / "transfer.png")
    except InputError as error:
        print(f"the loss curve was not drawn: {error}", file=sys.stderr)
        return False
    return True
