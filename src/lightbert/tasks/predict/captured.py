"""A forward pass as a CUDA graph, captured once per shape of its inputs."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.train.cuda_graph import capture, run_on_side_stream

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
        # Only the outputs outlive a replay, and they are copied: captures can share one memory pool.
        self._pool: Any = torch.cuda.graph_pool_handle()

    def __call__(self, *inputs: Tensor) -> Tensors:
        """Compute the outputs of inputs on the host."""
        shapes = tuple(each.shape for each in inputs)
        if shapes not in self._captures:
            placed = tuple(each.to(self._device, non_blocking=True) for each in inputs)
            self._calls[shapes] += 1
            if self._calls[shapes] <= WARMUP_CALLS:
                return run_on_side_stream(lambda: self._function(*placed), self._device)
            graph, outputs = capture(lambda: self._function(*placed), self._pool)
            self._captures[shapes] = _Capture(graph, placed, outputs)
        captured = self._captures[shapes]
        for static, given in zip(captured.inputs, inputs, strict=True):
            static.copy_(given, non_blocking=True)
        captured.graph.replay()
        # The next replay overwrites the outputs.
        return tuple(each.clone() for each in captured.outputs)
