"""A pre-training recipe: what a TOML file and the command line can say."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightbert.data.index import Builder
from lightbert.data.line_pairs import LinePairs
from lightbert.data.masking import Masking
from lightbert.data.packing import Packing
from lightbert.data.segments import Segments
from lightbert.data.sentence_pairs import SentencePairs
from lightbert.errors import InputError
from lightbert.train.optim import OptimizerSettings
from lightbert.train.schedule import Schedule

_MAY_CHANGE = {
    "out",
    "accumulate",
    "checkpoint_every",
    "keep",
    "log_every",
    "max_minutes",
    "device",
    "workers",
    "threads",
    "compile",
    "cuda_graph",
    "checkpointing",
    "sharding",
    "tensorboard",
}
"""Keys that a resumed run may set otherwise: they don't change what is learned, but for rounding and time budgets."""

_LEAST = {
    **dict.fromkeys(("batch", "length", "accumulate", "keep", "evaluate_batches"), 1),
    **dict.fromkeys(("seed", "steps", "epochs", "max_minutes", "workers", "threads"), 0),
    **dict.fromkeys(("checkpoint_every", "evaluate_every", "log_every"), 0),
}


@dataclass(frozen=True)
class Continuation:
    """A later phase: another length, with the rate raised again; 0 takes the recipe's own value."""

    length: int
    steps: int
    batch: int = 0
    lr: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """The keys of a pre-training recipe.

    model: a preset or a model folder to start from. change: where its config should differ, such as
    ``change.kernel = 5``. objective: "mlm" with examples "pairs" adds next-sentence prediction. generator: the size of
    the RTD generator beside the model's; temperature: that of its samples. steps, epochs or max_minutes says how long.
    phases: what comes after the first ``steps`` at ``length``.
    """

    model: str = "convbert-tiny"
    change: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    out: str = ""
    objective: Literal["rtd", "mlm"] = "rtd"
    examples: Literal["segments", "segments-released", "lines", "pairs", "packed"] = "segments"
    generator: float = 0.25
    temperature: float = 1.0
    seed: int = 0
    steps: int = 0
    epochs: int = 0
    batch: int = 128
    length: int = 128
    lr: float = 3e-4
    dropout: float | None = None
    masking: Masking = field(default_factory=Masking)
    whole_words: bool = False
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=10_000))
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    phases: tuple[Continuation, ...] = ()
    accumulate: int = 1
    max_minutes: float = 0.0
    checkpoint_every: int = 1000
    keep: int = 2
    evaluate_every: int = 1000
    evaluate_batches: int = 20
    log_every: int = 10
    device: str = "auto"
    workers: int = 2
    threads: int = 0
    compile: Literal["none", "blocks", "whole"] = "none"
    cuda_graph: bool = False
    checkpointing: bool = False
    sharding: Literal["replicate", "shard"] = "replicate"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for key in ("data", "out"):
            if not getattr(self, key):
                raise InputError(f"the recipe has no {key}: add {key}=FOLDER to the command")
        if not (self.steps or self.epochs or self.max_minutes):
            raise InputError("the recipe does not say how long to train: add steps=, epochs= or max_minutes=")
        if self.steps and self.epochs:
            raise InputError(f"steps = {self.steps} and epochs = {self.epochs} are both set: keep one of them")
        for key, least in _LEAST.items():
            if getattr(self, key) < least:
                raise InputError(f"{key} = {getattr(self, key)} is too small: it must be at least {least}")
        if self.lr <= 0:
            raise InputError(f"lr = {self.lr} must be above zero")
        for phase in self.phases:
            if min(phase.length, phase.steps) < 1 or min(phase.batch, phase.lr) < 0:
                raise InputError(
                    f"a phase with length = {phase.length}, steps = {phase.steps}, batch = {phase.batch} and "
                    f"lr = {phase.lr} cannot be trained: the first two must be at least 1, the others not below 0"
                )
        if self.sharding == "shard" and (self.cuda_graph or self.optimizer.kind == "muon"):
            what = "cuda_graph" if self.cuda_graph else 'optimizer.kind = "muon"'
            raise InputError(f"{what} needs whole tensors on every process: choose sharding=replicate or leave it out")
        if not (self.steps or self.epochs) and self.phases:
            raise InputError("max_minutes alone does not say when the first phase ends: add steps= or epochs=")
        if not (self.steps or self.epochs) and self.schedule.warmup >= 1:
            raise InputError(
                f"schedule.warmup = {self.schedule.warmup} counts steps and max_minutes alone does not say how many "
                "there are: give it as a share, such as schedule.warmup=0.1"
            )

    def builder(self) -> Builder:
        """What makes examples of documents."""
        match self.examples:
            case "segments":
                return Segments()
            case "segments-released":
                return Segments(released=True)
            case "lines":
                return LinePairs()
            case "pairs":
                return SentencePairs()
            case "packed":
                return Packing()

    def stretches(self, steps_per_epoch: int) -> list[Continuation]:
        """All phases, the first one included, with their values filled in."""
        steps = self.steps or self.epochs * steps_per_epoch
        first = Continuation(self.length, steps, self.batch, self.lr)
        later = [Continuation(p.length, p.steps, p.batch or self.batch, p.lr or self.lr) for p in self.phases]
        return [first, *later]

    def refuse_other(self, before: dict[str, Any], folder: Path) -> None:
        """Refuse to go on with a run whose recipe said something else that matters."""
        for key, value in asdict(self).items():
            was = before.get(key)
            if key not in _MAY_CHANGE and _plain(value) != was:
                raise InputError(
                    f"'{folder}' holds a run with {key} = {was}, this recipe says {_plain(value)}: "
                    f"set out= to another folder, or {key} back"
                )


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
