"""A distillation recipe: what a TOML file and the command line can say."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from lightbert.errors import InputError
from lightbert.objectives.distill.layer_transfer import Transfer
from lightbert.objectives.distill.stages import Strategy
from lightbert.train.corpus_recipe import CorpusRecipe


@dataclass(frozen=True)
class DistillRecipe(CorpusRecipe):
    """The keys of a distillation recipe.

    model: the student. teacher: a model folder, ours or Hugging Face's. strategy: see `objectives.distill.stages`.
    transfer_steps: of the stages that transfer layers, all together; steps: of the prediction after them. alpha: the
    share of the text's own words in what is predicted; the teacher has the rest. copy: whether the student starts with
    the teacher's embeddings and heads; None = where the paper does so, in "jkt" and "pkt". norm: what becomes of an
    embedding norm that cannot be copied. layer_rate, lower and soft are about "pkt": what the current layer's rate is
    multiplied by, and what of that the layers below it have, which may also be frozen.
    A ``dropout`` that is given is the student's; otherwise it has none while there is a teacher.
    """

    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "transfer_steps")
    may_change: ClassVar[frozenset[str]] = CorpusRecipe.may_change | {"teacher"}
    """A teacher may have moved; its weights are remembered beside the recipe."""

    model: str = "mobilebert-nano"
    examples: Literal["segments", "segments-released", "lines", "pairs", "packed"] = "pairs"
    teacher: str = ""
    strategy: Strategy = "pkt"
    transfer_steps: int = 0
    transfer: Transfer = field(default_factory=Transfer)
    alpha: float = 0.5
    copy: bool | None = None
    norm: Literal["identity", "copy", "train"] = "identity"
    layer_rate: float = 3.0
    lower: Literal["soft", "frozen"] = "soft"
    soft: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needs_teacher and not self.teacher:
            raise InputError(f"strategy = '{self.strategy}' needs a teacher: add teacher=FOLDER to the command")
        if self.transfer_steps < 0:
            raise InputError(f"transfer_steps = {self.transfer_steps} is too small: it must be at least 0")
        if self.starts_with_layers and not self.transfer_steps:
            raise InputError(
                f"transfer_steps = 0 leaves no time for the layers: strategy = '{self.strategy}' begins with them, "
                "so give at least one step per layer"
            )
        for key in ("layer_rate", "soft"):
            if getattr(self, key) <= 0:
                raise InputError(f"{key} = {getattr(self, key)} must be above zero; lower=frozen holds lower layers")
        if self.soft > 1:
            raise InputError(f"soft = {self.soft} would train lower layers faster than the current one: give 1 or less")
        if self.compile == "whole" and self.strategy == "pkt":
            raise InputError("compile=whole would compile every layer's stage anew: use compile=blocks")

    @property
    def needs_teacher(self) -> bool:
        """Whether the student learns from anybody but the text."""
        return self.strategy != "bare"

    @property
    def transfers_layers(self) -> bool:
        """Whether feature maps or attention are learned at all."""
        return self.strategy in ("akt", "jkt", "pkt")

    @property
    def starts_with_layers(self) -> bool:
        """Whether there is a stage of its own for the layers, with the embeddings and heads at rest."""
        return self.strategy in ("jkt", "pkt")
