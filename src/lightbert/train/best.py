"""The weights with the best held-out metric, kept until the end of a run."""

from collections.abc import Mapping
from math import inf, isnan

from torch import Tensor, nn

from lightbert.errors import unknown
from lightbert.train import checkpoint
from lightbert.train.distributed import World
from lightbert.train.run import Position


def rank_key(name: str, value: float) -> float:
    """Return a sort key for a metric's value, larger for the better; losses and errors are negated, NaN is worst."""
    if isnan(value):
        return -inf
    return -value if name.endswith(("loss", "mse")) else value


class BestWeights:
    """Keep a copy of the weights that are best by the held-out metric ``name``; "" = keep none.

    The best value and its step are stored in the position; the weights are stored in every checkpoint.
    """

    def __init__(self, name: str, model: nn.Module, world: World) -> None:
        self.name, self.model, self.world = name, model, world
        self.weights: dict[str, Tensor] = {}

    def update(self, numbers: Mapping[str, float], at: Position) -> None:
        """Copy the weights if the metric improved; a tie keeps the earlier copy, and NaN is never the best."""
        if not self.name or at.best_step == at.step:
            return
        if self.world.is_main and self.name not in numbers:
            raise unknown("held-out metric", self.name, numbers)
        value = self.world.broadcast(numbers.get(self.name, 0.0))
        if isnan(value):
            return
        if at.best_step < 0 or rank_key(self.name, value) > rank_key(self.name, at.best):
            at.best, at.best_step = value, at.step
            self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load the best weights from a checkpoint."""
        self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        checkpoint.restore(self.weights, tensors, "best weights")

    def restore(self) -> bool:
        """Copy the best weights into the model; return whether there were any."""
        if self.weights:
            targets = {name: p.data for name, p in self.model.named_parameters()}
            checkpoint.restore(targets, self.weights, "best weights")
        return bool(self.weights)
