"""The keys of a distillation recipe, in a TOML file or on the command line."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from lightbert.config import MAY_CHANGE, Count, PartialShare, Positive, PositiveShare, Share
from lightbert.errors import InputError
from lightbert.objectives.distill.stages import Strategy
from lightbert.objectives.distill.transfer_settings import Transfer
from lightbert.train.corpus_recipe import CorpusRecipe


@dataclass(frozen=True)
class DistillRecipe(CorpusRecipe):
    """Keys of distillation."""

    ends: ClassVar[tuple[str, ...]] = ("steps", "epochs", "transfer_steps")

    model: Annotated[str, "the student: a preset, or a trained model to start from"] = "mobilebert-nano"
    # The teacher's folder may move: its weights are identified by a hash saved with the recipe.
    teacher: Annotated[str, MAY_CHANGE, "a trained model; required unless strategy=bare"] = ""
    strategy: Annotated[
        Strategy,
        "bare: no teacher; pd: the teacher's predictions; akt: predictions and all layers in one loss; jkt: all "
        "layers, then pd; pkt: layer by layer, then pd",
    ] = "pkt"
    transfer_steps: Annotated[Count, "total steps of the layer transfer stages"] = 0
    steps: Annotated[Count, "steps of the prediction stage that follows"] = 0
    examples: Literal["segments", "segments-released", "lines", "pairs", "packed"] = "pairs"
    transfer: Transfer = field(default_factory=Transfer)
    alpha: Annotated[Share, "weight of the MLM loss; the teacher's predictions get 1 - alpha (Eq. 4)"] = 0.5
    copy: Annotated[bool | None, "start from the teacher's embeddings and heads; none: only in jkt and pkt"] = None
    norm: Annotated[Literal["identity", "copy", "train"], "how to handle an embedding norm that can't be copied"] = (
        "identity"
    )
    layer_rate: Annotated[Positive, "pkt: learning rate multiplier of the current layer"] = 3.0
    lower: Annotated[Literal["soft", "frozen"], "pkt: train the layers below it at a reduced rate, or freeze them"] = (
        "soft"
    )
    soft: Annotated[PositiveShare, "pkt: learning rate of the layers below, as a fraction of the current layer's"] = 0.1
    dropout: Annotated[
        PartialShare | None, "dropout of the student; none: no dropout with a teacher, as in the released code"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needs_teacher and not self.teacher:
            raise InputError(f"strategy '{self.strategy}' requires a teacher; add teacher=PATH")
        if self.starts_with_layers and not self.transfer_steps:
            raise InputError(
                f"strategy '{self.strategy}' requires transfer_steps >= 1, got 0; give at least one step per layer"
            )
        if self.compile == "whole" and self.strategy == "pkt":
            raise InputError("compile=whole recompiles at every stage of strategy 'pkt'; use compile=blocks")

    @property
    def needs_teacher(self) -> bool:
        """Whether the strategy uses a teacher."""
        return self.strategy != "bare"

    @property
    def transfers_layers(self) -> bool:
        """Whether feature maps or attention are transferred."""
        return self.strategy in ("akt", "jkt", "pkt")

    @property
    def starts_with_layers(self) -> bool:
        """Whether layers have their own stages, with the embeddings and heads frozen."""
        return self.strategy in ("jkt", "pkt")
