"""The weights that did best on held-out text, put aside until the end of a run."""

from collections.abc import Mapping

from torch import Tensor, nn

from lightbert.errors import unknown
from lightbert.train import checkpoint
from lightbert.train.distributed import World
from lightbert.train.run import Position


def rank_key(name: str, value: float) -> float:
    """What is higher for the better of two held-out numbers of this name: of losses and errors the lower is better."""
    return -value if name.endswith(("loss", "mse")) else value


class Best:
    """Follows one held-out number, ``name``; "" = nothing is put aside. ``goodness`` says what is best.

    How good they were, and when, is part of the position; the weights are part of every checkpoint.
    """

    def __init__(self, name: str, model: nn.Module, world: World) -> None:
        self.name, self.model, self.world = name, model, world
        self.weights: dict[str, Tensor] = {}

    def consider(self, numbers: Mapping[str, float], at: Position) -> None:
        """Put the weights aside if the number was never better; the first of equals stays."""
        if not self.name or at.best_step == at.step:
            return
        if self.world.is_main and self.name not in numbers:
            raise unknown("held-out number", self.name, numbers)
        value = self.world.broadcast(numbers.get(self.name, 0.0))
        if at.best_step < 0 or rank_key(self.name, value) > rank_key(self.name, at.best):
            at.best, at.best_step = value, at.step
            self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def resume(self, tensors: dict[str, Tensor]) -> None:
        """Take the weights that a checkpoint held."""
        self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        checkpoint.restore(self.weights, tensors, "best weights")

    def put_back(self) -> bool:
        """Give the model its best weights, if there are any: whether there were."""
        if self.weights:
            targets = {name: p.data for name, p in self.model.named_parameters()}
            checkpoint.restore(targets, self.weights, "best weights")
        return bool(self.weights)
