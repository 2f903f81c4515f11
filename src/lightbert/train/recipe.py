"""A pre-training recipe: what a TOML file and the command line can say."""

from dataclasses import dataclass
from typing import Literal

from lightbert.errors import InputError
from lightbert.train.corpus_recipe import CorpusRecipe


@dataclass(frozen=True)
class Continuation:
    """A later phase: another length, with the rate raised again; 0 takes the recipe's own value."""

    length: int
    steps: int
    batch: int = 0
    lr: float = 0.0


@dataclass(frozen=True)
class Recipe(CorpusRecipe):
    """The keys of a pre-training recipe.

    objective: "mlm" with examples "pairs" adds next-sentence prediction. generator: the size of the RTD generator
    beside the model's; temperature: that of its samples. steps, epochs or max_minutes says how long. phases: what
    comes after the first ``steps`` at ``length``.
    """

    model: str = "convbert-tiny"
    objective: Literal["rtd", "mlm"] = "rtd"
    generator: float = 0.25
    temperature: float = 1.0
    phases: tuple[Continuation, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for phase in self.phases:
            if min(phase.length, phase.steps) < 1 or min(phase.batch, phase.lr) < 0:
                raise InputError(
                    f"a phase with length = {phase.length}, steps = {phase.steps}, batch = {phase.batch} and "
                    f"lr = {phase.lr} cannot be trained: the first two must be at least 1, the others not below 0"
                )
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

    def stretches(self, steps_per_epoch: int) -> list[Continuation]:
        """All phases, the first one included, with their values filled in."""
        steps = self.steps or self.epochs * steps_per_epoch
        first = Continuation(self.length, steps, self.batch, self.lr)
        later = [Continuation(p.length, p.steps, p.batch or self.batch, p.lr or self.lr) for p in self.phases]
        return [first, *later]
