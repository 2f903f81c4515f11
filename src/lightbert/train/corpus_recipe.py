"""What every recipe says that trains on prepared text."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightbert.data.batches.masking import Masking
from lightbert.data.examples.index import Builder
from lightbert.data.examples.line_pairs import LinePairs
from lightbert.data.examples.packing import Packing
from lightbert.data.examples.segments import Segments
from lightbert.data.examples.sentence_pairs import SentencePairs
from lightbert.errors import InputError
from lightbert.train.optim import OptimizerSettings
from lightbert.train.schedule import Schedule

_LEAST = {
    **dict.fromkeys(("batch", "length", "accumulate", "keep", "evaluate_batches"), 1),
    **dict.fromkeys(("seed", "steps", "epochs", "max_minutes", "workers", "threads"), 0),
    **dict.fromkeys(("checkpoint_every", "evaluate_every", "log_every"), 0),
}


@dataclass(frozen=True)
class CorpusRecipe:
    """The keys that all trainings on prepared text share.

    model: a preset, or a trained model to start from. change: where its config should differ, such as
    ``change.kernel = 5``.
    """

    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "max_minutes")
    """The keys that say how long to train; one of them is needed."""
    may_change: ClassVar[frozenset[str]] = frozenset(
        {
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
    )
    """Keys that a resumed run may set otherwise: they don't change what is learned, but for rounding and budgets."""

    model: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    out: str = ""
    examples: Literal["segments", "segments-released", "lines", "pairs", "packed"] = "segments"
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
        if not any(getattr(self, key) for key in self.ends):
            *most, last = [f"{key}=" for key in self.ends]
            raise InputError(f"the recipe does not say how long to train: add {', '.join(most)} or {last}")
        if self.steps and self.epochs:
            raise InputError(f"steps = {self.steps} and epochs = {self.epochs} are both set: keep one of them")
        for key, least in _LEAST.items():
            if getattr(self, key) < least:
                raise InputError(f"{key} = {getattr(self, key)} is too small: it must be at least {least}")
        if self.lr <= 0:
            raise InputError(f"lr = {self.lr} must be above zero")
        if self.sharding == "shard" and (self.cuda_graph or self.optimizer.kind == "muon"):
            what = "cuda_graph" if self.cuda_graph else 'optimizer.kind = "muon"'
            raise InputError(f"{what} needs whole tensors on every process: choose sharding=replicate or leave it out")

    @property
    def longest(self) -> int:
        """The tokens of the longest row: what the model needs positions for."""
        return self.length

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
