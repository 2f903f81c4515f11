"""The keys that all recipes share: ranges, meanings, and which of them may change when a run is resumed."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from lightbert.config import (
    MAY_CHANGE,
    Count,
    NonNegative,
    Positive,
    Seed,
    Size,
    Threads,
    check,
    check_texts,
    keys,
    may_change,
)
from lightbert.errors import InputError
from lightbert.train.aliases import ALIASES
from lightbert.train.optimizer_settings import OptimizerSettings
from lightbert.train.schedule import Schedule


@dataclass(frozen=True)
class BaseRecipe:
    """Keys of every recipe."""

    aliases: ClassVar[dict[str, str]] = ALIASES
    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "max_minutes")
    """The keys that set how long to train; at least one is required."""
    required: ClassVar[tuple[str, ...]] = ("out",)
    """The keys that must be given, in the recipe or on the command line."""

    model: Annotated[str, "a preset, or a trained model to start from"] = ""
    change: Annotated[
        dict[str, Any], "overrides of the model's config: change.kernel=5, change.dropout=0.2, any field of it"
    ] = field(default_factory=dict)
    out: Annotated[str, MAY_CHANGE, "the folder of the run; required"] = ""
    seed: Annotated[Seed, "random seed of weights, data order, masks, samples and dropout"] = 0
    steps: Annotated[Count, "optimizer steps; 0: until epochs or max_minutes is reached"] = 0
    max_minutes: Annotated[
        NonNegative,
        MAY_CHANGE,
        "time limit in minutes, evaluations and checkpoints included; with steps, whichever ends first; 0: no limit",
    ] = 0.0
    batch: Annotated[Size, "rows per step, over all processes"] = 128
    length: Annotated[Size, "tokens per row"] = 128
    lr: Annotated[Positive, "the peak learning rate"] = 3e-4
    schedule: Schedule = field(default_factory=Schedule)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    accumulate: Annotated[
        Size,
        MAY_CHANGE,
        "gradient accumulation: parts into which each process splits its batch; less memory, same result",
    ] = 1
    checkpoint_every: Annotated[Count, MAY_CHANGE, "steps between checkpoints; 0: only at the end"] = 1000
    keep: Annotated[Size, MAY_CHANGE, "number of checkpoints to keep while training"] = 2
    keep_checkpoints: Annotated[
        bool, MAY_CHANGE, "keep the checkpoints, with the optimizer state, after the end of the run"
    ] = False
    evaluate_every: Annotated[Count, "steps between evaluations; 0: only at the end"] = 1000
    log_every: Annotated[Count, MAY_CHANGE, "steps between log writes; 0: only at evaluations and checkpoints"] = 10
    device: Annotated[str, MAY_CHANGE, "auto: the GPU if there is one; or cpu, cuda, cuda:1"] = "auto"
    workers: Annotated[Threads, MAY_CHANGE, "threads that prefetch batches; affects speed only"] = 2
    threads: Annotated[
        Threads,
        MAY_CHANGE,
        "CPU threads of PyTorch; 0: PyTorch's default; models of about a million parameters are fastest with 1",
    ] = 0
    compile: Annotated[
        Literal["auto", "none", "blocks", "whole"],
        MAY_CHANGE,
        "torch.compile: auto is blocks on a GPU if batches have few shapes, otherwise none; blocks compiles within a "
        "minute; whole takes minutes and runs a little faster",
    ] = "auto"
    cuda_graph: Annotated[
        Literal["auto", True, False],
        MAY_CHANGE,
        "capture the whole step as a CUDA graph and replay it; auto: on a GPU with a single process, where the step "
        "can be captured",
    ] = "auto"
    tensorboard: Annotated[bool, MAY_CHANGE, "also write out/tensorboard"] = False

    def __post_init__(self) -> None:
        check(self)
        check_texts(self)
        for key in self.required:
            if not getattr(self, key):
                raise InputError(f"{key} is required; add {key}=FOLDER")
        if not any(getattr(self, key) for key in self.ends):
            *most, last = [f"{key}=" for key in self.ends]
            raise InputError(f"the length of training is required; add {', '.join(most)} or {last}")

    @property
    def may_change(self) -> frozenset[str]:
        """The keys whose values may change when a run is resumed."""
        return may_change(type(self))

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults by dotted key: what a run had whose version didn't know a key yet."""
        return {key.name: key.default for key in keys(type(self))}
