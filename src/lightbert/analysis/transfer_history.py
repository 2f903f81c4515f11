"""The transfer losses of each layer over the steps of a distillation, read from its log."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightbert.analysis.run_log import read_records
from lightbert.errors import InputError

Curves = dict[str, dict[int, list[tuple[int, float]]]]
"""Loss ("fmt" or "at") -> layer -> (step, value) pairs."""

_LAYER_LOSS = re.compile(r"(fmt|at)_(\d+)")
# A plot can't show more steps, and all steps of a long run wouldn't fit in memory.
_TRAINING_POINTS = 4000


@dataclass
class Stage:
    """Consecutive steps with the same losses: of layers, of predictions, or both. ``last`` is inclusive."""

    name: str
    first: int
    last: int


@dataclass
class TransferHistory:
    """The layer losses of a run on training batches and on held-out text, and its stages."""

    train: Curves = field(default_factory=dict)
    held_out: Curves = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    @property
    def layers(self) -> list[int]:
        """The layers with losses, counted from 1."""
        both = [*self.train.values(), *self.held_out.values()]
        return sorted({layer for curves in both for layer in curves})

    @property
    def latest(self) -> dict[str, float]:
        """The latest losses by name: on held-out text if there is any, else of training."""
        curves = self.held_out or self.train
        return {f"{kind}_{layer}": points[-1][1] for kind, each in curves.items() for layer, points in each.items()}


def read_history(metrics: Path) -> TransferHistory:
    """Read a metrics.jsonl, also of a run in progress; keeps every n-th training step of a long run."""
    if not metrics.is_file():
        raise InputError(f"'{metrics}' not found; give the folder of a run, the out= of `lightbert distill`")
    with metrics.open(encoding="utf-8") as file:
        every = 1 + sum(1 for _ in file) // _TRAINING_POINTS
    history = TransferHistory()
    for number, record in enumerate(read_records(metrics)):
        if record["kind"] == "held-out":
            _collect(history.held_out, record)
            continue
        _extend_stages(history.stages, record)
        # Skipped steps belong to a stage, but their losses aren't finite.
        if record["kind"] == "train" and number % every == 0:
            _collect(history.train, record)
    if not history.layers:
        raise InputError(
            f"'{metrics}' has no layer losses; give a run of `lightbert distill` with strategy=akt, jkt or pkt"
        )
    return history


def _collect(curves: Curves, record: dict[str, Any]) -> None:
    for name, value in record.items():
        found = _LAYER_LOSS.fullmatch(name)
        # Values that aren't finite are logged as None.
        if found and value is not None:
            curves.setdefault(found[1], {}).setdefault(int(found[2]), []).append((record["step"], value))


def _extend_stages(stages: list[Stage], record: dict[str, Any]) -> None:
    """Add a training step to the last stage if it has the same losses, else start a new stage."""
    layers = sorted({int(found[2]) for name in record if (found := _LAYER_LOSS.fullmatch(name))})
    parts = ["–".join(map(str, dict.fromkeys((layers[0], layers[-1]))))] if layers else []
    parts += ["predictions"] if "mlm_loss" in record else []
    name = " + ".join(parts)
    if stages and stages[-1].name == name:
        stages[-1].last = record["step"]
    else:
        stages.append(Stage(name, record["step"], record["step"]))
