"""Where the time of a training step goes, by kind of kernel: `python -m benchmarks.step_profile`.

Steps run as in `benchmarks.training`, compiled but not captured. The report of that benchmark has the same by kind for
all of its steps; this one also names the longest kernels.
"""

import argparse
from collections.abc import Sequence

import torch

from benchmarks.gpu import Kernel, by_kind, copy_bandwidth, matmul_rate, profiled
from benchmarks.pages import run_main
from benchmarks.training_cases import CASES, Case, finetuning, matching, matmul_flops, moved_bytes, our_pass, whole_step
from lightbert.errors import InputError
from lightbert.train.compilation import keep_compiled_code

_WARM, _STEPS = 3, 5


def measure(case: Case, device: torch.device, steps: int = _STEPS) -> list[Kernel]:
    """Profile steps of a case; the kernels of one step, the longest first. On a CPU, operators take their place."""
    make = finetuning if case.finetune else whole_step if case.rtd else our_pass
    work = make(case, device)
    for _ in range(_WARM):
        work()
    return profiled(work, device, steps)


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
    parser = argparse.ArgumentParser(prog="benchmarks.step_profile", description=__doc__)
    parser.add_argument("--cases", default=CASES[0].name, help="cases whose name contains this text")
    parser.add_argument("--shown", type=int, default=12, help="number of kernels that are listed, the longest first")
    given = parser.parse_args(arguments)
    chosen = matching(given.cases)
    if not torch.cuda.is_available():
        raise InputError("a profile of steps requires a GPU, but PyTorch finds none")
    keep_compiled_code()
    ceilings = (matmul_rate(), copy_bandwidth())
    for case in chosen:
        print(report(case, measure(case, torch.device("cuda")), ceilings, given.shown), end="\n\n", flush=True)


if __name__ == "__main__":
    run_main(main)
