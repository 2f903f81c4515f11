"""A training step as a CUDA graph: captured once, then replayed without Python overhead.

Before the capture, calls run eagerly on a side stream; operations that make the host wait for the GPU are found there.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.objectives.objective import Objective
from lightbert.train.distributed import World
from lightbert.train.optim import Optimizers
from lightbert.train.step import Step

Result = TypeVar("Result")


def run_on_side_stream(function: Callable[[], Result], device: torch.device) -> Result:
    """Call a function on a stream of its own, as CUDA graphs require before a capture."""
    stream, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        result = function()
    main.wait_stream(stream)
    return result


def capture(function: Callable[[], Result], pool: Any) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Capture a call of a function, which runs no kernel; a replay of the graph fills the tensors of the result.

    pool: a memory pool that captures can share if only their results outlive a replay.
    """
    graph = torch.cuda.CUDAGraph()
    # cuBLAS keeps one workspace per stream. A workspace allocated during capture belongs to the graph's memory pool,
    # and the next capture would use it after that memory is freed.
    torch._C._cuda_clearCublasWorkspaces()
    # "thread_local" lets other threads use the GPU during capture, such as a loader that pins memory.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = function()
    torch._C._cuda_clearCublasWorkspaces()
    return graph, result


_MESSAGE = "called a synchronizing CUDA operation"


@contextmanager
def recorded_waits() -> Iterator[list[str]]:
    """Collect where PyTorch waits for the GPU, such as "muon.py:51"; the list is filled at the end of the context.

    The operations run as usual.
    """
    waits: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode(before)
    for warning in caught:
        if _MESSAGE in str(warning.message):
            waits.append(f"{Path(warning.filename).name}:{warning.lineno}")
        elif "Synchronization debug mode" not in str(warning.message):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


WARMUP_STEPS = 3
"""Eager steps per batch shape before the step is captured."""

Shapes = tuple[torch.Size | None, ...]
Key = tuple[Shapes, int]
"""The shapes of a batch and the layout of the optimizer."""


def uses_cuda_graph(wanted: Literal["auto"] | bool, world: World) -> bool:
    """Return whether steps are captured: on a GPU and by a single process.

    Several processes that were told to capture get a warning instead.
    """
    if wanted is False or world.device.type != "cuda":
        return False
    if wanted is True and world.size > 1 and world.is_main:
        print("warning: cuda_graph=true requires a single process; steps run without CUDA graphs", file=sys.stderr)
    return world.size == 1


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    output: Tensor


class CudaGraphStep(Step):
    """A step that is captured once per batch shape, after a few warm-up steps, and then replayed.

    Launching a kernel of a small model takes longer than running it; a replay is a single launch. A step that can't be
    captured, for example because it waits for a value from the GPU, stays eager, with the same results.
    """

    def __init__(self, objective: Objective, optimizers: Optimizers, world: World, *, accumulate: int = 1) -> None:
        super().__init__(objective, optimizers, world, accumulate=accumulate)
        self._captures: dict[Key, _Capture] = {}
        self._warmups: Counter[Key] = Counter()
        self._pool: Any = None
        self._captures_steps = True

    def __call__(self, batch: Batch) -> Tensor:
        """Apply one step."""
        if not self._captures_steps:
            return super().__call__(batch)
        key = _shapes(batch), self.optimizers.layout
        if key not in self._captures:
            self._warmups[key] += 1
            if self._warmups[key] < WARMUP_STEPS:
                return self._warmup_step(batch)
            if self._warmups[key] == WARMUP_STEPS:
                return self._checked_warmup_step(batch)
            capture = self._try_capture(batch)
            if capture is None:
                return super().__call__(batch)
            self._captures[key] = capture
        capture = self._captures[key]
        capture.inputs.copy_from(batch)
        capture.graph.replay()
        return capture.output.clone()

    def _try_capture(self, batch: Batch) -> _Capture | None:
        """Capture a step; None if that fails, and then everything is as before the attempt."""
        device = self.world.device
        stream, random_state = torch.cuda.current_stream(device), torch.cuda.get_rng_state(device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            return self._capture(batch)
        except RuntimeError as error:
            reason = _first_line(error)
        # The context manager of a failed capture leaves its stream current, the allocator directed to the graph's
        # memory pool, and the random number generator in capture mode.
        torch.cuda.set_stream(stream)
        index = stream.device_index
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(index, self._pool)
            torch._C._cuda_releasePool(index, self._pool)
        # A new generator state; captured graphs would still read the old one, so that they can't be replayed either.
        torch.cuda.default_generators[index].graphsafe_set_state(torch.Generator(device))
        torch.cuda.set_rng_state(random_state, device)
        self._stop_capturing(f"capturing failed: {reason}")
        return None

    def _capture(self, batch: Batch) -> _Capture:
        """Capture a step on this batch's tensors, into which later batches are copied."""
        # Only the output of a step outlives it, and it is kept: captures can share one memory pool.
        graph, output = capture(lambda: super(CudaGraphStep, self).__call__(batch), self._pool)
        return _Capture(graph, batch, output)

    def _warmup_step(self, batch: Batch) -> Tensor:
        return run_on_side_stream(lambda: super(CudaGraphStep, self).__call__(batch), self.world.device)

    def _checked_warmup_step(self, batch: Batch) -> Tensor:
        """Run a warm-up step, and capture no steps if it waits for the GPU: such a capture is known to fail."""
        with recorded_waits() as waits:
            output = self._warmup_step(batch)
        if waits:
            self._stop_capturing(f"the step waits for the GPU at {waits[0]}")
        return output

    def _stop_capturing(self, reason: str) -> None:
        """Run all further steps eagerly."""
        self._captures_steps = False
        # A replay may still be running.
        torch.cuda.synchronize(self.world.device)
        self._captures.clear()
        self._pool = None
        # Gradients of a failed capture were never computed.
        self.optimizers.zero_grad()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        print(f"steps run without CUDA graphs, because {reason}", file=sys.stderr)


def _shapes(batch: Batch) -> Shapes:
    tensors = (getattr(batch, field.name) for field in fields(batch))
    return tuple(None if tensor is None else tensor.shape for tensor in tensors)


def _first_line(error: BaseException) -> str:
    """The first line of the error that came first: ending an invalid capture raises another one."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0]
