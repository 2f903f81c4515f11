"""What a CUDA graph needs: eager calls on a side stream, then a capture in a memory pool."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

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
