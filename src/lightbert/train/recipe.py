"""The keys of a pre-training recipe, in a TOML file or on the command line."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

from lightbert.config import MAY_CHANGE, Count, NonNegative, Positive, PositiveShare, Share, Size, check
from lightbert.errors import InputError
from lightbert.train.corpus_recipe import CorpusRecipe
from lightbert.train.schedule import Schedule


@dataclass(frozen=True)
class VectorSettings:
    """A teacher's vector of each text as a target for the mean of the model's states."""

    teacher: Annotated[
        str, 'a sentence encoder with the vocabulary of the data, whose vectors the model learns as well; "": none'
    ] = ""
    weight: Annotated[NonNegative, "weight of the vectors in the loss, in which that of mlm is 1"] = 20.0
    similarity: Annotated[
        NonNegative, "weight of the similarities between the texts of a batch, where that of their cosines is 1"
    ] = 2.0

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Continuation:
    """A later phase, with its own schedule; 0, "" and None = use the recipe's value.

    data: another prepared folder with the same vocabulary. Only the folder of the current phase has to be there, so
    that a long run can read a corpus part by part.
    """

    length: Size
    steps: Size
    batch: Count = 0
    lr: NonNegative = 0.0
    data: str = ""
    warmup: NonNegative | None = None
    decay: Share | None = None

    def __post_init__(self) -> None:
        check(self)


class PhaseValues(NamedTuple):
    """The resolved values of a phase; steps = 0 means until the time budget is used up."""

    length: int
    steps: int
    batch: int
    lr: float
    data: str
    schedule: Schedule


@dataclass(frozen=True)
class Recipe(CorpusRecipe):
    """Keys of pre-training."""

    model: str = "convbert-tiny"
    objective: Annotated[
        Literal["rtd", "mlm"],
        "rtd: replaced-token detection; mlm: masked-language modelling, with next-sentence prediction for pairs",
    ] = "rtd"
    generator: Annotated[
        PositiveShare, "size of the RTD generator: width, feed-forward and heads as a fraction of the model's"
    ] = 0.25
    generator_model: Annotated[
        str,
        "a trained generator to continue with; by default the folder generator in the model's folder or next to it, if "
        "there is one; none: random weights",
    ] = ""
    temperature: Annotated[
        Positive, "sampling temperature of the generator; above 1 replacements are easier to detect"
    ] = 1.0
    rtd_weight: Annotated[Positive, "weight of the discriminator's loss in rtd; the generator's is 1"] = 50.0
    shared_embeddings: Annotated[
        Literal["both", "generator"],
        "whose loss trains the embeddings that generator and discriminator share; generator: DeBERTa-v3, without its "
        "table of differences",
    ] = "both"
    vectors: VectorSettings = field(default_factory=VectorSettings)
    overlap: Annotated[
        Literal["auto", True, False],
        MAY_CHANGE,
        "run the backward passes of generator and discriminator at the same time, on two CUDA streams; auto: for rtd "
        "on a single GPU, unless compile=whole; the result is the same",
    ] = "auto"
    phases: Annotated[
        tuple[Continuation, ...],
        "later phases: a list of tables with length and steps, and batch, lr, data, warmup or decay where they differ; "
        "phases that have not begun may change when a run is resumed",
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap is True and self.compile == "whole":
            raise InputError("overlap=true can't be compiled as a whole; use compile=blocks or overlap=false")
        if self.vectors.teacher and (self.objective != "rtd" or self.examples == "packed"):
            raise InputError(
                "vectors.teacher requires objective=rtd and one example per row, got "
                f"objective={self.objective} and examples={self.examples}"
            )
        if not (self.steps or self.epochs) and self.phases:
            raise InputError("phases require steps= or epochs=; max_minutes doesn't set when the first phase ends")
        if not (self.steps or self.epochs) and self.schedule.warmup >= 1:
            raise InputError(
                f"schedule.warmup must be a share of the run (< 1) if only max_minutes is set, got "
                f"{self.schedule.warmup}; use for example schedule.warmup=0.1"
            )

    @property
    def longest(self) -> int:
        """The tokens of the longest row of any phase."""
        return max([self.length, *(phase.length for phase in self.phases)])

    def resolved_phases(self, steps_per_epoch: int) -> list[PhaseValues]:
        """Return all phases, the first one included, with default values filled in."""
        steps = self.steps or self.epochs * steps_per_epoch
        first = PhaseValues(self.length, steps, self.batch, self.lr, self.data, self.schedule)
        return [first, *map(self._later, self.phases)]

    def _later(self, phase: Continuation) -> PhaseValues:
        warmup = self.schedule.warmup if phase.warmup is None else phase.warmup
        decay = self.schedule.decay if phase.decay is None else phase.decay
        return PhaseValues(
            phase.length,
            phase.steps,
            phase.batch or self.batch,
            phase.lr or self.lr,
            phase.data or self.data,
            replace(self.schedule, warmup=warmup, decay=decay),
        )
