"""A distillation recipe: what a TOML file and the command line can say."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from lightbert.errors import InputError
from lightbert.keys import MAY_CHANGE
from lightbert.objectives.distill.stages import Strategy
from lightbert.objectives.distill.transfer_settings import Transfer
from lightbert.ranges import Count, PartialShare, Positive, PositiveShare, Share
from lightbert.train.corpus_recipe import CorpusRecipe


@dataclass(frozen=True)
class DistillRecipe(CorpusRecipe):
    """Keys of distillation."""

    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "transfer_steps")

    model: Annotated[str, "the student: a preset, or a model folder to start from"] = "mobilebert-nano"
    # A teacher may have moved; its weights are remembered beside the recipe.
    teacher: Annotated[str, MAY_CHANGE, "a model folder, ours or Hugging Face's; required except by strategy=bare"] = ""
    strategy: Annotated[
        Strategy,
        "bare: the text only; pd: and the teacher's predictions; akt: and all layers in one loss; jkt: all layers, "
        "then as pd; pkt: layer after layer, then as pd",
    ] = "pkt"
    transfer_steps: Annotated[Count, "steps of the stages that transfer layers, all together"] = 0
    steps: Annotated[Count, "steps of the predictions after them"] = 0
    examples: Literal["segments", "segments-released", "lines", "pairs", "packed"] = "pairs"
    transfer: Transfer = field(default_factory=Transfer)
    alpha: Annotated[Share, "the share of the text's own words in what is predicted; the teacher has the rest"] = 0.5
    copy: Annotated[
        bool | None, "whether the student starts with the teacher's embeddings and heads; none: in jkt and pkt"
    ] = None
    norm: Annotated[Literal["identity", "copy", "train"], "what becomes of an embedding norm that can't be copied"] = (
        "identity"
    )
    layer_rate: Annotated[Positive, "pkt: what the rate of the current layer is multiplied by"] = 3.0
    lower: Annotated[Literal["soft", "frozen"], "pkt: the layers below it learn slowly, or are frozen"] = "soft"
    soft: Annotated[PositiveShare, "pkt: the rate of the layers below, as a share of the current layer's"] = 0.1
    dropout: Annotated[
        PartialShare | None, "the student's dropouts; none: no dropout while it has a teacher, as released"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needs_teacher and not self.teacher:
            raise InputError(f"strategy '{self.strategy}' requires a teacher: add teacher=FOLDER")
        if self.starts_with_layers and not self.transfer_steps:
            raise InputError(
                f"strategy '{self.strategy}' requires transfer_steps >= 1, got 0; give at least one step per layer"
            )
        if self.compile == "whole" and self.strategy == "pkt":
            raise InputError("compile=whole would compile every layer's stage anew: use compile=blocks")

    @property
    def needs_teacher(self) -> bool:
        """Whether the student learns from anything but the text."""
        return self.strategy != "bare"

    @property
    def transfers_layers(self) -> bool:
        """Whether feature maps or attention are learned at all."""
        return self.strategy in ("akt", "jkt", "pkt")

    @property
    def starts_with_layers(self) -> bool:
        """Whether there is a stage of its own for the layers, with the embeddings and heads frozen."""
        return self.strategy in ("jkt", "pkt")
