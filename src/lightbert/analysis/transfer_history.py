"""How far each layer of a student was from its teacher's, step by step, as the log of its distillation tells it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightbert.errors import InputError

Curves = dict[str, dict[int, list[tuple[int, float]]]]
"""What was compared ("fmt" or "at"), by layer: pairs of step and value."""

_OF_A_LAYER = re.compile(r"(fmt|at)_(\d+)")
# More steps than that cannot be told apart in a picture, and all of a long run's would not fit in memory.
_TRAINING_POINTS = 4000


@dataclass
class Stage:
    """Steps, the last one included, in which the same was learned: the layers by number, the predictions or both."""

    name: str
    first: int
    last: int


@dataclass
class TransferHistory:
    """What a run logged about its layers, on the batches it trained on and on held-out text."""

    train: Curves = field(default_factory=dict)
    held_out: Curves = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    @property
    def layers(self) -> list[int]:
        """The layers that were compared, counted from 1."""
        both = [*self.train.values(), *self.held_out.values()]
        return sorted({layer for curves in both for layer in curves})

    @property
    def latest(self) -> dict[str, float]:
        """The newest numbers by their names in the log: on held-out text, or of training if none was held out."""
        curves = self.held_out or self.train
        return {f"{kind}_{layer}": points[-1][1] for kind, each in curves.items() for layer, points in each.items()}


def read_history(metrics: Path) -> TransferHistory:
    """Read a metrics.jsonl, also of a run that is not done; of a long one only every n-th step of training."""
    if not metrics.is_file():
        raise InputError(f"there is no '{metrics}'; give the folder of a run, the out= of `lightbert distill`")
    with metrics.open(encoding="utf-8") as file:
        every = 1 + sum(1 for _ in file) // _TRAINING_POINTS
    history = TransferHistory()
    for number, record in enumerate(_records(metrics)):
        if record["kind"] == "held-out":
            _collect(history.held_out, record)
            continue
        _continue(history.stages, record)
        # A step that was skipped belongs to its stage, but its numbers are those that made it be skipped.
        if record["kind"] == "train" and number % every == 0:
            _collect(history.train, record)
    if not history.layers:
        raise InputError(
            f"'{metrics}' compares no layers; the strategies akt, jkt and pkt of `lightbert distill` transfer them"
        )
    return history


def _records(metrics: Path) -> Iterator[dict[str, Any]]:
    with metrics.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            # The last one may still be being written.
            if not line.endswith("\n"):
                return
            try:
                record = json.loads(line)
            except ValueError:
                raise InputError(f"line {number} of '{metrics}' is damaged; remove it") from None
            yield record


def _collect(curves: Curves, record: dict[str, Any]) -> None:
    for name, value in record.items():
        found = _OF_A_LAYER.fullmatch(name)
        # What was not finite is logged as None.
        if found and value is not None:
            curves.setdefault(found[1], {}).setdefault(int(found[2]), []).append((record["step"], value))


def _continue(stages: list[Stage], record: dict[str, Any]) -> None:
    """Count a step of training to the stage that learns what it learns: the last one, or a new one."""
    layers = sorted({int(found[2]) for name in record if (found := _OF_A_LAYER.fullmatch(name))})
    parts = ["–".join(map(str, dict.fromkeys((layers[0], layers[-1]))))] if layers else []
    parts += ["predictions"] if "mlm_loss" in record else []
    name = " + ".join(parts)
    if stages and stages[-1].name == name:
        stages[-1].last = record["step"]
    else:
        stages.append(Stage(name, record["step"], record["step"]))
