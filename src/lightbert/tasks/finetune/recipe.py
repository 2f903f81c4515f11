"""A fine-tuning recipe: what a TOML file and the command line can say about one run."""

from dataclasses import dataclass, field
from typing import Any, Literal

from lightbert.errors import InputError
from lightbert.tasks.datasets.own_files import Files
from lightbert.train.optim import OptimizerSettings
from lightbert.train.schedule import Schedule

MAY_CHANGE = frozenset(
    {
        *("out", "accumulate", "checkpoint_every", "keep", "log_every", "max_minutes"),
        *("device", "workers", "threads", "cuda_graph", "tensorboard"),
    }
)
"""Keys that a resumed run may set otherwise: they don't change what is learned, but for rounding and time budgets."""

_LEAST = {
    **dict.fromkeys(("batch", "sort_over", "accumulate", "keep"), 1),
    **dict.fromkeys(("seed", "steps", "epochs", "limit", "evaluate_every", "max_minutes"), 0),
    **dict.fromkeys(("workers", "threads", "checkpoint_every", "log_every"), 0),
}


@dataclass(frozen=True)
class HeadSettings:
    """What stands between [CLS] and the labels: nothing (ELECTRA), BERT's tanh, or transformers' gelu."""

    hidden: Literal["none", "tanh", "gelu"] = "none"
    dropout: float = 0.1


@dataclass(frozen=True)
class AnswerSettings:
    """Question answering: BERT's two logits ("span") or ELECTRA's joint head ("beam"), windows and candidates."""

    head: Literal["span", "beam"] = "span"
    stride: int = 128
    max_query: int = 64
    max_answer: int = 30
    n_best: int = 20


@dataclass(frozen=True)
class FinetuneRecipe:
    """The keys of one fine-tuning run.

    model: a trained model to start from, by any name; a preset's name starts from random weights and needs a
    ``tokenizer``. task: a name of the catalogue, with ``data`` the folder of its files; without a task ``data.*``
    names files of the user's own. ``change``: where the model's config should differ, such as ``change.padding``.
    """

    model: str = ""
    tokenizer: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    task: str = ""
    data: str | Files = ""
    out: str = ""
    head: HeadSettings = field(default_factory=HeadSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    scaled: bool = True
    """Numbers are learned as their place between the lowest and the highest, not as they are."""
    double: bool = True
    """Pairs that mean the same in either order are trained on in both."""
    limit: int = 0
    """Train on the first so many examples only; 0 = all."""
    seed: int = 0
    steps: int = 0
    epochs: float = 3.0
    batch: int = 32
    sort_over: int = 64
    """Rows are sorted by length over so many batches: little padding. Over 1, a batch is made of any rows."""
    length: int = 128
    lr: float = 1e-4
    layer_decay: float = 0.8
    layer_depths: Literal["released", "corrected"] = "released"
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=0.1))
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    choose: Literal["last", "best"] = "last"
    metric: str = ""
    """What is best, if not the task's own."""
    accumulate: int = 1
    max_minutes: float = 0.0
    checkpoint_every: int = 500
    keep: int = 1
    evaluate_every: int = 0
    """Steps between evaluations; 0 = one per epoch."""
    log_every: int = 10
    device: str = "auto"
    workers: int = 2
    threads: int = 0
    cuda_graph: bool = True
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for key in ("model", "out"):
            if not getattr(self, key):
                raise InputError(f"the recipe has no {key}: add {key}=FOLDER to the command")
        if not self.task and not (isinstance(self.data, Files) and self.data.train):
            raise InputError("the recipe has nothing to train on: add task=NAME data=FOLDER, or data.train=FILE")
        if not (self.steps or self.epochs or self.max_minutes):
            raise InputError("the recipe does not say how long to train: add epochs=, steps= or max_minutes=")
        for key, least in _LEAST.items():
            if getattr(self, key) < least:
                raise InputError(f"{key} = {getattr(self, key)} is too small: it must be at least {least}")
        if self.lr <= 0:
            raise InputError(f"lr = {self.lr} must be above zero")
        if not 0 < self.layer_decay <= 1:
            raise InputError(f"layer_decay = {self.layer_decay} must be above 0 and at most 1, which is no decay")
