"""One optimisation step, from a batch to updated weights, without host synchronisation."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lightbert.data.batch import Batch
from lightbert.objectives.objective import Losses, Objective
from lightbert.train.distributed import World
from lightbert.train.half_weights import HalfWeights
from lightbert.train.optim import Optimizers
from lightbert.train.sharding import is_sharded


class Step:
    """Mask, forward, backward, update; static shapes and no host synchronisation, as CUDA graphs require."""

    def __init__(self, objective: Objective, optimizers: Optimizers, world: World, *, accumulate: int = 1) -> None:
        self.objective, self.optimizers, self.world = objective, optimizers, world
        self.accumulate = accumulate
        self.call: Any = objective
        # With several processes the gradients must be ready one by one, while others are being sent.
        alone = self.half_precision and world.size == 1
        self.half_weights = HalfWeights(objective, optimizers.gradient_place) if alone else None
        if world.size > 1 and not is_sharded(objective):
            self.call = DistributedDataParallel(objective, gradient_as_bucket_view=True)

    @property
    def half_precision(self) -> bool:
        """Whether matmuls run in bf16: on a GPU."""
        return self.world.device.type == "cuda"

    def autocast(self) -> Any:
        """Return the bf16 autocast context on a GPU; on a CPU everything stays in fp32."""
        return torch.autocast(self.world.device.type, dtype=torch.bfloat16) if self.half_precision else nullcontext()

    def _cast_weights(self) -> AbstractContextManager[None]:
        """Give the layers bf16 weights for one forward and backward pass."""
        return nullcontext() if self.half_weights is None else self.half_weights.installed()

    def _gradient_sync(self, *, last: bool) -> AbstractContextManager[None]:
        """Synchronise gradients once per step: in the backward pass of the last part."""
        if is_sharded(self.call):
            self.call.set_requires_gradient_sync(last)
        elif self.world.size > 1 and not last:
            no_sync: AbstractContextManager[None] = self.call.no_sync()
            return no_sync
        return nullcontext()

    def __call__(self, batch: Batch) -> Tensor:
        """Apply one step; return the tallies of this process, the gradient norm, and whether the step was applied."""
        with torch.no_grad():
            parts = [self.objective.prepare(part) for part in batch.split(self.accumulate)]
            counts = self.world.sum(torch.stack([self.objective.counts(part) for part in parts]).sum(0))
        tally: Tensor | float = 0.0
        for index, part in enumerate(parts):
            with self._gradient_sync(last=index == len(parts) - 1), self._cast_weights():
                with self.autocast():
                    losses: Losses = self.call(part, counts)
                # DDP and FSDP average gradients over processes, but the loss is already divided by the global counts.
                (losses.total * self.world.size).backward()
            tally = tally + losses.tally
        norm, finite = self.optimizers.step()
        self.optimizers.zero_grad()
        return torch.cat([torch.as_tensor(tally), torch.stack([norm.double(), finite.double()])])
