"""Where the time of a training step goes, by kind of kernel: `python -m lightbert.bench.step_profile`.

Steps run as in `lightbert bench training`, compiled but not captured, under PyTorch's profiler. The times of the
kernels are those on the GPU, so that waiting for Python doesn't count; kernels that overlap on two streams count twice.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from lightbert.bench.gpu_timing import copy_bandwidth, matmul_rate
from lightbert.bench.training_cases import CASES, Case, finetuning, matmul_flops, moved_bytes, our_pass, whole_step
from lightbert.errors import InputError
from lightbert.train.compiled_code import keep_compiled_code

_WARM, _STEPS = 3, 5

KINDS = {
    "attention": r"flash|fmha|sdpa|attention",
    "dynamic convolution": r"dynamic_conv",
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
    """A kernel's calls in all steps."""

    name: str
    microseconds: float
    calls: int

    @property
    def kind(self) -> str:
        """The kind that its name says; "other" if none."""
        return next((kind for kind, pattern in KINDS.items() if re.search(pattern, self.name)), "other")


def measure(case: Case, device: torch.device, steps: int = _STEPS) -> list[Kernel]:
    """Profile steps of a case; the kernels of one step, the longest first. On a CPU, operators take their place."""
    make = finetuning if case.finetune else whole_step if case.rtd else our_pass
    on_gpu = device.type == "cuda"
    work = make(case, device)
    for _ in range(_WARM):
        work()
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        for _ in range(steps):
            work()
        if on_gpu:
            torch.cuda.synchronize()
    events = profiler.key_averages()
    times = [(each.key, each.self_device_time_total if on_gpu else each.self_cpu_time_total) for each in events]
    kernels = [
        Kernel(name, taken / steps, round(each.count / steps))
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


def table(kernels: Sequence[Kernel]) -> list[str]:
    """The rows of a Markdown table of milliseconds, shares of all kernels, and calls per step."""
    total = sum(kernel.microseconds for kernel in kernels)
    rows = [
        f"| {kernel.name} | {kernel.microseconds / 1e3:.3f} | {kernel.microseconds / total:.1%} | {kernel.calls} |"
        for kernel in kernels
    ]
    return ["| | ms per step | share | calls |", "| --- | ---: | ---: | ---: |", *rows]


def report(case: Case, kernels: Sequence[Kernel], ceilings: tuple[float, float], shown: int = 12) -> str:
    """The tables by kind and by kernel.

    ceilings: FLOP/s and bytes per second, for the least time of the step.
    shown: number of kernels in the second table, the longest.
    """
    total = sum(kernel.microseconds for kernel in kernels) / 1e3
    lines = [f"{case.name}: {total:.2f} ms in kernels per step", "", *table(by_kind(kernels)), ""]
    if all(ceilings) and not case.finetune:
        products, bytes_moved = matmul_flops(case) / ceilings[0] * 1e3, moved_bytes(case) / ceilings[1] * 1e3
        lines += [
            f"The least time: {products:.2f} ms for the FLOPs of the matrix products at {ceilings[0] / 1e12:.0f} "
            f"TFLOP/s, {bytes_moved:.2f} ms for the bytes of fused kernels between them at {ceilings[1] / 1e12:.2f} "
            "TB/s.",
            "",
        ]
    return "\n".join([*lines, *table(kernels)[: shown + 2]])


def main(arguments: list[str] | None = None) -> None:
    """Profile the cases whose name contains a text."""
    parser = argparse.ArgumentParser(prog="lightbert.bench.step_profile", description=__doc__)
    parser.add_argument("--cases", default=CASES[0].name, help="cases whose name contains this text")
    parser.add_argument("--shown", type=int, default=12, help="number of kernels that are listed, the longest first")
    given = parser.parse_args(arguments)
    chosen = [case for case in CASES if given.cases in case.name]
    if not chosen:
        raise InputError(f"no case has this name; the cases are {', '.join(case.name for case in CASES)}")
    if not torch.cuda.is_available():
        raise InputError("a profile of steps requires a GPU, but PyTorch finds none")
    keep_compiled_code()
    ceilings = (matmul_rate(), copy_bandwidth())
    for case in chosen:
        print(report(case, measure(case, torch.device("cuda")), ceilings, given.shown), end="\n\n", flush=True)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"lightbert.bench.step_profile: {error}")
