"""A step as one CUDA graph: recorded once, then replayed without Python in between."""

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightbert.data.batches.batch import Batch
from lightbert.objectives.objective import Objective
from lightbert.train.distributed import World
from lightbert.train.optim import Optimizers
from lightbert.train.step import Step

WARMUP_STEPS = 3


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    output: Tensor


class CudaGraphStep(Step):
    """The same step, recorded after a few plain ones for each shape of batch: every phase has its own recording.

    Launching a kernel of a small model costs more than running it; a replay is one launch.
    """

    def __init__(self, objective: Objective, optimizers: Optimizers, world: World, *, accumulate: int = 1) -> None:
        super().__init__(objective, optimizers, world, accumulate=accumulate)
        self._recordings: dict[torch.Size, _Recording] = {}
        self._plain: Counter[torch.Size] = Counter()
        self._pool: Any = None

    def __call__(self, batch: Batch) -> Tensor:
        """Apply one step."""
        shape = batch.ids.shape
        if shape not in self._recordings:
            if self._plain[shape] < WARMUP_STEPS:
                self._plain[shape] += 1
                return self._warmup_step(batch)
            self._recordings[shape] = self._record(batch)
        recording = self._recordings[shape]
        recording.inputs.copy_from(batch)
        recording.graph.replay()
        return recording.output.clone()

    def _record(self, batch: Batch) -> _Recording:
        """Record a step on this batch's own tensors, which later batches are copied into; nothing runs yet."""
        graph = torch.cuda.CUDAGraph()
        # cuBLAS keeps its workspace per stream: one made while recording belongs to the graph's memory, and another
        # recording would go on using it after that memory is gone.
        torch._C._cuda_clearCublasWorkspaces()
        # Nothing of a step outlives it but its output, which is held: recordings can use the same memory. What
        # other threads ask of the GPU meanwhile, such as pinned memory for the next batch, is none of its business.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = super().__call__(batch)
        self._pool = graph.pool()
        torch._C._cuda_clearCublasWorkspaces()
        return _Recording(graph, batch, output)

    def _warmup_step(self, batch: Batch) -> Tensor:
        """A plain step on a stream of its own, as recording requires of what runs before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = super().__call__(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return output
