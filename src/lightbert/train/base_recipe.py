"""The keys of every recipe, whatever it trains: their ranges, their meanings, and which may change on resume."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from lightbert.config import check
from lightbert.errors import InputError
from lightbert.keys import MAY_CHANGE, may_change
from lightbert.ranges import Count, NonNegative, Positive, Seed, Size
from lightbert.train.aliases import ALIASES
from lightbert.train.optimizer_settings import OptimizerSettings
from lightbert.train.schedule import Schedule


@dataclass(frozen=True)
class BaseRecipe:
    """Keys of every training."""

    aliases: ClassVar[dict[str, str]] = ALIASES
    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "max_minutes")
    """The keys that say how long to train; one of them is needed."""
    needed: ClassVar[tuple[str, ...]] = ("out",)
    """The keys that every command has to give unless the recipe does."""

    model: Annotated[str, "a preset, or a model folder to start from"] = ""
    change: Annotated[
        dict[str, Any], "where the model's config should differ: change.kernel=5, change.dropout=0.2, any field of it"
    ] = field(default_factory=dict)
    out: Annotated[str, MAY_CHANGE, "the folder of the run; required"] = ""
    seed: Annotated[Seed, "decides weights, order, masks, samples and dropout"] = 0
    steps: Annotated[Count, "optimizer steps; 0: until epochs or max_minutes is reached"] = 0
    max_minutes: Annotated[
        NonNegative, MAY_CHANGE, "minutes of training and evaluation; with steps, whichever ends first; 0: no limit"
    ] = 0.0
    batch: Annotated[Size, "rows per step, of all processes together"] = 128
    length: Annotated[Size, "tokens per row"] = 128
    lr: Annotated[Positive, "the peak learning rate"] = 3e-4
    schedule: Schedule = field(default_factory=Schedule)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    accumulate: Annotated[
        Size, MAY_CHANGE, "parts in which a process works through its share of a batch: less memory, the same result"
    ] = 1
    checkpoint_every: Annotated[Count, MAY_CHANGE, "steps between checkpoints; 0: only at the end"] = 1000
    keep: Annotated[Size, MAY_CHANGE, "checkpoints to keep"] = 2
    evaluate_every: Annotated[Count, "steps between evaluations; 0: only at the end"] = 1000
    log_every: Annotated[
        Count, MAY_CHANGE, "steps between fetching losses for the log; 0: only at evaluations and checkpoints"
    ] = 10
    device: Annotated[str, MAY_CHANGE, "auto: the GPU if there is one; or cpu, cuda, cuda:1"] = "auto"
    workers: Annotated[Count, MAY_CHANGE, "threads that prefetch batches; changes nothing but speed"] = 2
    threads: Annotated[
        Count, MAY_CHANGE, "CPU threads of PyTorch; 0: its own choice; models of a million parameters are fastest on 1"
    ] = 0
    cuda_graph: Annotated[bool, MAY_CHANGE, "on a GPU, record the whole step once and replay it"] = False
    tensorboard: Annotated[bool, MAY_CHANGE, "also write out/tensorboard"] = False

    def __post_init__(self) -> None:
        check(self)
        for key in self.needed:
            if not getattr(self, key):
                raise InputError(f"the recipe has no {key}: add {key}=FOLDER")
        if not any(getattr(self, key) for key in self.ends):
            *most, last = [f"{key}=" for key in self.ends]
            raise InputError(f"the recipe does not say how long to train: add {', '.join(most)} or {last}")

    @property
    def may_change(self) -> frozenset[str]:
        """The keys that a resumed run may set to other values."""
        return may_change(type(self))
