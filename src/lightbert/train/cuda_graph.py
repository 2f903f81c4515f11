"""A training step as a CUDA graph: captured once, then replayed without Python overhead."""

import sys
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
"""Eager steps per batch shape before the step is captured."""


def uses_cuda_graph(wanted: bool, world: World) -> bool:
    """Return whether steps are captured: on a GPU and by a single process; several processes get a warning instead."""
    if not wanted or world.device.type != "cuda":
        return False
    if world.size > 1 and world.is_main:
        print("warning: cuda_graph=true requires a single process; steps run without CUDA graphs", file=sys.stderr)
    return world.size == 1


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    output: Tensor


class CudaGraphStep(Step):
    """A step that is captured once per batch shape, after a few warm-up steps, and then replayed.

    Launching a kernel of a small model takes longer than running it; a replay is a single launch.
    """

    def __init__(self, objective: Objective, optimizers: Optimizers, world: World, *, accumulate: int = 1) -> None:
        super().__init__(objective, optimizers, world, accumulate=accumulate)
        self._captures: dict[torch.Size, _Capture] = {}
        self._warmups: Counter[torch.Size] = Counter()
        self._pool: Any = None

    def __call__(self, batch: Batch) -> Tensor:
        """Apply one step."""
        shape = batch.ids.shape
        if shape not in self._captures:
            if self._warmups[shape] < WARMUP_STEPS:
                self._warmups[shape] += 1
                return self._warmup_step(batch)
            self._captures[shape] = self._capture(batch)
        capture = self._captures[shape]
        capture.inputs.copy_from(batch)
        capture.graph.replay()
        return capture.output.clone()

    def _capture(self, batch: Batch) -> _Capture:
        """Capture a step on this batch's tensors, into which later batches are copied; capturing runs no kernel."""
        graph = torch.cuda.CUDAGraph()
        # cuBLAS keeps one workspace per stream. A workspace allocated during capture belongs to the graph's memory
        # pool, and the next capture would use it after that memory is freed.
        torch._C._cuda_clearCublasWorkspaces()
        # Only the output of a step outlives it, and it is kept: captures can share one memory pool. "thread_local"
        # lets other threads use the GPU during capture, such as the loader, which pins memory for the next batch.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = super().__call__(batch)
        self._pool = graph.pool()
        torch._C._cuda_clearCublasWorkspaces()
        return _Capture(graph, batch, output)

    def _warmup_step(self, batch: Batch) -> Tensor:
        """Run a step eagerly on a side stream, as CUDA graphs require before capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = super().__call__(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return output
