"""Compile every kernel for a GPU that this machine doesn't have, by calling the ops on small tensors on the CPU.

A program for a process of its own, because the tests run kernels in Triton's interpreter, which replaces the compiler:
`python compile_kernels.py CAPABILITY EVERY`. It prints the kernels of the package as JSON, and the compiled ones with
the bytes of shared memory that they need.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import lightbert.ops.kernels
from benchmarks.kernel_cases import OPS, RANDOM, Size
from lightbert.ops.backend import using
from lightbert.ops.embedding import embedding
from lightbert.ops.relative_attention import relative_attention

SMALL = Size("small", 2, 128, 256, 128, 2)
LONG = Size("long", 1, 192, 128, 128, 1)
WIDE = Size("wide", 1, 64, 384, 192, 3)
ODD = Size("odd", 1, 37, 312, 60, 3, vocab=1001)
WITH_TEXTS = ("depthwise", "dynamic_conv", "relative_attention")


class AbsentGPU:
    """What Triton's launcher asks a driver for before it compiles a kernel."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def name_of(kernel: JITFunction) -> str:
    return f"{kernel.fn.__module__}.{kernel.fn.__name__}"


def kernels() -> Iterator[str]:
    """The kernels of the package; the other functions in these files are compiled as parts of them."""
    root = Path(lightbert.ops.kernels.__file__).parent
    for path in sorted(root.glob("[!_]*.py")):
        module = importlib.import_module(f"lightbert.ops.kernels.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, JITFunction) and value.fn.__module__ == module.__name__ and "kernel" in value.__name__:
                yield name_of(value)


def record_compilation() -> dict[str, int]:
    """Compile kernels instead of launching them; return their names and shared memory, filled by every launch."""
    compiled: dict[str, int] = {}
    launch = JITFunction.run

    def only_compile(kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **settings: Any) -> Any:
        result = launch(kernel, *arguments, grid=grid, warmup=True, **settings)
        name = name_of(kernel)
        compiled[name] = max(compiled.get(name, 0), result.metadata.shared)
        return result

    JITFunction.run = only_compile
    return compiled


def call(op: Callable[..., Tensor], **inputs: Tensor | None) -> None:
    """Run the forward pass and, if there is one, the backward pass; the results are not computed."""
    with using("triton"):
        out = op(**inputs)
        if out.requires_grad:
            out.backward(torch.zeros_like(out))


def call_all(every: bool) -> None:
    """Call the ops as usual, in bf16; with ``every`` also in fp16 and fp32, padded, packed and with odd shapes."""
    for name, (op, inputs) in (OPS | RANDOM).items():
        call(op, **inputs(SMALL, "cpu", torch.bfloat16))
        if every:
            call(op, **inputs(ODD, "cpu", torch.float16))
            call(op, **inputs(SMALL, "cpu", torch.float32))
            if name in WITH_TEXTS:
                for dtype in (torch.bool, torch.int64):
                    texts = torch.ones(SMALL.batch, SMALL.tokens, dtype=dtype)
                    call(op, **inputs(SMALL, "cpu", torch.bfloat16), texts=texts)
    call(embedding, ids=torch.zeros(2, 64, dtype=torch.int64), table=torch.zeros(30, 128, requires_grad=True))
    # Wide heads have kernels of their own.
    heads, wide = OPS["mixed_heads"]
    call(heads, **wide(WIDE, "cpu", torch.bfloat16))
    # The backward pass of rows that are longer than a block has a kernel of its own.
    attention, inputs = OPS["relative_attention"]
    call(attention, **inputs(LONG, "cpu", torch.bfloat16))
    if every:
        call(heads, **wide(WIDE, "cpu", torch.float32))
        call(attention, **inputs(LONG, "cpu", torch.float32))
        for size in (SMALL, LONG):
            given = inputs(size, "cpu", torch.bfloat16)
            call(relative_attention, **given, by_key=given["by_query"].detach().requires_grad_(), dropout=0.1)
        plain, inputs = OPS["plain_attention"]
        call(plain, **inputs(SMALL, "cpu", torch.bfloat16), dropout=0.1)
        # A layer that isn't plain adds its bias itself.
        for op, inputs in (OPS["residual_norm"], RANDOM["residual_norm with dropout"]):
            call(op, **inputs(SMALL, "cpu", torch.bfloat16) | {"change_bias": None})


def main() -> None:
    capability, every = int(sys.argv[1]), sys.argv[2] == "True"
    driver.set_active(AbsentGPU(capability))
    compiled = record_compilation()
    call_all(every)
    print(json.dumps({"kernels": sorted(kernels()), "compiled": compiled}))


if __name__ == "__main__":
    main()
