"""A pre-training recipe: what a TOML file and the command line can say."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from lightbert.config import check
from lightbert.errors import InputError
from lightbert.ranges import Count, NonNegative, Positive, PositiveShare, Size
from lightbert.train.corpus_recipe import CorpusRecipe


@dataclass(frozen=True)
class Continuation:
    """A later phase: another length, with the rate raised again; 0 takes the recipe's own value."""

    length: Size
    steps: Size
    batch: Count = 0
    lr: NonNegative = 0.0

    def __post_init__(self) -> None:
        check(self)


class Stretch(NamedTuple):
    """The values of a phase; 0 steps are as many as the time budget allows."""

    length: int
    steps: int
    batch: int
    lr: float


@dataclass(frozen=True)
class Recipe(CorpusRecipe):
    """Keys of pre-training."""

    model: str = "convbert-tiny"
    objective: Annotated[
        Literal["rtd", "mlm"], "replaced-token detection, or masked-language modelling, with pairs and next sentences"
    ] = "rtd"
    generator: Annotated[
        PositiveShare, "the width, feed-forward and heads of the RTD generator, as a share of the model's"
    ] = 0.25
    temperature: Annotated[Positive, "of the generator's samples; above 1 they are easier to tell from the text"] = 1.0
    phases: Annotated[
        tuple[Continuation, ...], "what comes after the first steps: a list of tables with length, steps, batch and lr"
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.steps or self.epochs) and self.phases:
            raise InputError("max_minutes alone does not say when the first phase ends: add steps= or epochs=")
        if not (self.steps or self.epochs) and self.schedule.warmup >= 1:
            raise InputError(
                f"schedule.warmup = {self.schedule.warmup} counts steps and max_minutes alone does not say how many "
                "there are: give it as a share, such as schedule.warmup=0.1"
            )

    @property
    def longest(self) -> int:
        """The tokens of the longest row of any phase."""
        return max([self.length, *(phase.length for phase in self.phases)])

    def stretches(self, steps_per_epoch: int) -> list[Stretch]:
        """All phases, the first one included, with their values filled in."""
        steps = self.steps or self.epochs * steps_per_epoch
        later = [Stretch(p.length, p.steps, p.batch or self.batch, p.lr or self.lr) for p in self.phases]
        return [Stretch(self.length, steps, self.batch, self.lr), *later]
