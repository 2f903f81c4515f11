"""Triton kernels compared with the references, eager and compiled, and with transformers, on a GPU.

`make test-gpu` checks the kernels. Times are medians of captured calls on rotating inputs; bandwidth counts the
necessary bytes: each input is read once and each output is written once.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu import copy_bandwidth, microseconds
from benchmarks.kernel_cases import OPS, RANDOM, SIZES, Op, Size, Tensors, padded, unbiased, unfolded
from benchmarks.pages import run_main
from lightbert.errors import InputError
from lightbert.ops import backend

SETS = 3
"""Number of rotating inputs; together they are larger than the cache."""


@dataclass(frozen=True)
class Timing:
    """The times of one implementation of an op at one size."""

    op: str
    size: str
    variant: str
    forward_us: float
    both_us: float
    forward_share: float
    """Fraction of the copy bandwidth, by the necessary bytes."""
    both_share: float


def _by(name: backend.Backend, op: Op, **inputs: Tensor | None) -> Tensor:
    with backend.using(name):
        return op(**inputs)


def variants(name: str, op: Op) -> Iterator[tuple[str, Op]]:
    """The implementations to compare."""
    yield "sorted" if name == "embedding" else "triton", partial(_by, "triton", op)
    yield "torch eager", partial(_by, "torch", op)
    yield "torch compiled", partial(_by, "torch", torch.compile(op, dynamic=False))
    if name == "dynamic_conv":
        yield "unfold eager", unfolded
        yield "unfold compiled", torch.compile(unfolded, dynamic=False)
    if name == "relative_attention":
        yield "without bias", unbiased


def prepared(name: str, variant: str, sets: list[Tensors]) -> list[Tensors]:
    """The inputs as an implementation gets them in a model: the dynamic convolution's kernel gets padded logits."""
    return [padded(each) for each in sets] if (name, variant) == ("dynamic_conv", "triton") else sets


def time_variant(variant: Op, sets: list[Tensors]) -> tuple[float, float]:
    """Microseconds of the forward pass, and of forward and backward pass."""

    def forward(inputs: Tensors) -> Tensor:
        with torch.no_grad():
            return variant(**inputs)

    def both(inputs: Tensors, direction: Tensor) -> object:
        sought = [tensor for tensor in inputs.values() if tensor.requires_grad]
        return torch.autograd.grad(variant(**inputs), sought, direction, allow_unused=True)

    alone = microseconds([partial(forward, inputs) for inputs in sets])
    if not any(tensor.requires_grad for tensor in sets[0].values()):
        return alone, alone
    directions = [torch.randn_like(forward(inputs)) for inputs in sets]
    return alone, microseconds([partial(both, *each) for each in zip(sets, directions, strict=True)])


def necessary_bytes(inputs: Tensors, out: Tensor) -> tuple[int, int]:
    """The necessary bytes of the forward pass, and of forward and backward pass."""
    read = sum(tensor.nbytes for tensor in inputs.values())
    again = sum(tensor.nbytes for tensor in inputs.values() if tensor.requires_grad)
    forward = read + out.nbytes
    return forward, forward + (2 * again + out.nbytes if again else 0)


def measure(sizes: list[Size], seconds: float, ops: str = "") -> list[Timing]:
    """Time every variant at every size until the time limit."""
    started = time.monotonic()
    copied = copy_bandwidth()
    timings = []
    for name, (op, inputs) in (OPS | RANDOM).items():
        if not any(word in name for word in ops.split(",")):
            continue
        for size in sizes:
            sets = [inputs(size) for _ in range(SETS)]
            with torch.no_grad():
                forward_bytes, both_bytes = necessary_bytes(sets[0], _by("triton", op, **sets[0]))
            for variant, implementation in variants(name, op):
                if time.monotonic() - started > seconds:
                    print(f"{name}, {size.name}: skipped from {variant} on, the limit of {seconds:.0f} s is reached")
                    break
                torch._dynamo.reset()
                forward, both = time_variant(implementation, prepared(name, variant, sets))
                shares = (forward_bytes / forward * 1e6 / copied, both_bytes / both * 1e6 / copied)
                timings.append(Timing(name, size.name, variant, forward, both, *shares))
                print(_line(timings[-1]), flush=True)
    return timings


def _line(timing: Timing) -> str:
    return (
        f"{timing.op:26} {timing.size:15} {timing.variant:16} {timing.forward_us:9.1f} {timing.both_us:9.1f} µs"
        f" {timing.forward_share:7.1%} {timing.both_share:7.1%}"
    )


def main() -> None:
    """Print a table, and write all figures with --out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="", help="substring of the sizes to run, such as 'small'; default: all")
    parser.add_argument("--ops", default="", help="parts of the names of the ops, such as 'norm,gelu'; default: all")
    parser.add_argument("--seconds", type=float, default=240, help="time limit")
    parser.add_argument("--out", type=Path, help="write all figures to this JSON file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise InputError("the benchmark of kernels requires a GPU")
    sizes = [size for size in SIZES if arguments.sizes in size.name]
    timings = measure(sizes, arguments.seconds, arguments.ops)
    if arguments.out:
        content = json.dumps([asdict(timing) for timing in timings], indent=2)
        arguments.out.write_text(content + "\n", encoding="utf-8")
    print(f"\n{'op':26} {'size':15} variant            forward      both    forward    both, of bandwidth")
    print("\n".join(_line(timing) for timing in timings))


if __name__ == "__main__":
    run_main(main)
