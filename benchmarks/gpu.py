"""Timing of GPU work, captured as a CUDA graph to exclude host overhead."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

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


KINDS = {
    "attention": r"flash|fmha|sdpa|attention",
    "dynamic convolution": r"dynamic_conv|span_",
    "depthwise convolution": r"depthwise",
    "residual and norm": r"residual_norm",
    "bias and GELU": r"bias_gelu",
    "feed-forward": r"relu_feedforward",
    "cross-entropy and sampling": r"cross_entropy|sampling",
    "sums over programs": r"partial_sums",
    "embedding gradient": r"embedding|RadixSort|radix_sort|searchsorted|DeviceScan",
    "optimizer": r"multi_tensor|foreach|[Aa]dam|lpnorm",
    "matrix products": r"gemm|nvjet|cutlass|cublas|splitK|aten::(add)?mm|aten::bmm",
    "compiled": r"^triton_",
    "copies": r"[Mm]emcpy|[Mm]emset|copy|CatArray",
}
"""Kinds of kernels by their names; the first that matches counts."""


@dataclass(frozen=True)
class Kernel:
    """A kernel and its calls."""

    name: str
    microseconds: float
    calls: int

    @property
    def kind(self) -> str:
        """The kind that its name says; "other" if none."""
        return next((kind for kind, pattern in KINDS.items() if re.search(pattern, self.name)), "other")


def profiled(work: Callable[[], object], device: torch.device, calls: int) -> list[Kernel]:
    """Profile some calls; the kernels of one call, the longest first. On a CPU, operators take their place."""
    on_gpu = device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        for _ in range(calls):
            work()
        if on_gpu:
            torch.cuda.synchronize()
    events = profiler.key_averages()
    times = [(each.key, each.self_device_time_total if on_gpu else each.self_cpu_time_total) for each in events]
    kernels = [
        Kernel(name, taken / calls, round(each.count / calls))
        for (name, taken), each in zip(times, events, strict=True)
        if taken > 0
    ]
    return sorted(kernels, key=lambda kernel: -kernel.microseconds)


def by_kind(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Add up the kernels of each kind, the longest first."""
    sums: dict[str, tuple[float, int]] = {}
    for kernel in kernels:
        taken, calls = sums.get(kernel.kind, (0.0, 0))
        sums[kernel.kind] = (taken + kernel.microseconds, calls + kernel.calls)
    return sorted((Kernel(kind, *total) for kind, total in sums.items()), key=lambda kernel: -kernel.microseconds)
