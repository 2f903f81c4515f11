"""A forward pass as a CUDA graph, captured once per shape of its inputs."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightbert.errors import InputError

Tensors = tuple[Tensor, ...]

WARMUP_CALLS = 2
"""Eager calls per shape before the capture, in which kernels are compiled and libraries initialized."""


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


class CapturedForward:
    """Calls a function of tensors; on a GPU, from the third call with the same shapes on, by replaying a CUDA graph.

    Launching the kernels of a small model takes longer than running them; a replay is a single launch. The graph reads
    the weights where they were at its capture: they may change in place, but must not move.
    function: takes and returns tensors on the device, without host synchronization.
    """

    def __init__(self, function: Callable[..., Tensors], device: torch.device) -> None:
        if device.type != "cuda":
            raise InputError(f"a forward pass can be captured on a GPU only, got the device '{device}'")
        self._function, self._device = function, device
        self._captures: dict[tuple[torch.Size, ...], _Capture] = {}
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._pool: Any = None

    def __call__(self, *inputs: Tensor) -> Tensors:
        """Compute the outputs of inputs on the host."""
        shapes = tuple(each.shape for each in inputs)
        if shapes not in self._captures:
            placed = tuple(each.to(self._device, non_blocking=True) for each in inputs)
            self._calls[shapes] += 1
            if self._calls[shapes] <= WARMUP_CALLS:
                return self._warm_up(placed)
            self._captures[shapes] = self._capture(placed)
        capture = self._captures[shapes]
        for static, given in zip(capture.inputs, inputs, strict=True):
            static.copy_(given, non_blocking=True)
        capture.graph.replay()
        # The next replay overwrites the outputs.
        return tuple(each.clone() for each in capture.outputs)

    def _warm_up(self, inputs: Tensors) -> Tensors:
        """Run eagerly on a side stream, as CUDA graphs require before a capture."""
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            outputs = self._function(*inputs)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        return outputs

    def _capture(self, inputs: Tensors) -> _Capture:
        """Capture the function on these tensors, into which later inputs are copied; capturing runs no kernel."""
        graph = torch.cuda.CUDAGraph()
        # As in training: a workspace of cuBLAS that is allocated during a capture belongs to the memory of the graph.
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = self._function(*inputs)
        self._pool = graph.pool()
        torch._C._cuda_clearCublasWorkspaces()
        return _Capture(graph, inputs, outputs)
