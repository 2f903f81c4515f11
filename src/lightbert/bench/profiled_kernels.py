"""The kernels of some work on a GPU, under PyTorch's profiler, and their kinds.

The times are those on the GPU, so that waiting for Python doesn't count; kernels that overlap on two streams count
twice.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

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
