"""Held-out numbers: the same batches, masks and samples every time."""

import torch

from lightbert.data.batches.loader import Loader
from lightbert.objectives.objective import Objective
from lightbert.train.step import Step


@torch.no_grad()
def evaluate(step: Step, loader: Loader, batches: int) -> dict[str, float]:
    """Summarise the objective over the first batches of a held-out loader, without dropout."""
    objective: Objective = step.objective
    objective.eval()
    tally = torch.zeros(len(objective.tallies), dtype=torch.double, device=step.world.device)
    # Compiling once more for a few batches without gradient would take longer than the batches.
    with torch.compiler.set_stance("force_eager"), step.autocast():
        for number in range(batches):
            batch = objective.prepare(loader.at(number).to(step.world.device))
            tally += objective(batch, objective.counts(batch)).tally
    objective.train()
    sums = step.world.sum(tally).tolist()
    return objective.summary(dict(zip(objective.tallies, sums, strict=True)))
