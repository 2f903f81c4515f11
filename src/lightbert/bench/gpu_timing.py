"""Timing of GPU work, captured as a CUDA graph to exclude host overhead."""

from collections.abc import Callable, Sequence
from statistics import median

import torch

_CALLS, _REPEATS = 6, 15


def microseconds(work: Sequence[Callable[[], object]]) -> float:
    """The median time of one call; calls rotate, so pass more inputs than fit into the cache."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for call in work:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(_CALLS):
            work[number % len(work)]()
    times = []
    for _ in range(_REPEATS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / _CALLS)
    del graph
    return float(median(times[2:]))


def copy_bandwidth(gibibytes: float = 1.0) -> float:
    """Bytes read and written per second by a large elementwise kernel.

    ``copy_`` is not measured: in a CUDA graph it uses the copy engine, which is slower.
    """
    source = torch.rand(int(gibibytes * 2**28), device="cuda")
    target = torch.empty_like(source)
    taken = microseconds([lambda: torch.mul(source, 2.0, out=target)])
    return 2 * source.numel() * source.element_size() / taken * 1e6


def matmul_rate(size: int = 8192) -> float:
    """FLOP/s of a large bfloat16 matmul."""
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / microseconds([lambda: one @ other]) * 1e6
