"""Time a case of the training benchmark with the memset nodes of its CUDA graph, and with kernels in their place.

    PYTHONPATH=src python lab/graph_memsets.py "convbert-small 256x128, RTD step"

cuBLAS clears a counter before many products; a captured step does so by memset nodes, some with 5 µs from kernel
to kernel. All variants are captured in one process and replayed in random order; the third one has memset nodes again.
Requires libcuda and a PyTorch whose CUDAGraph has ``keep_graph``.
"""

import argparse
import ctypes
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import Any

import torch

from lightbert.bench.training_cases import CASES, our_pass, whole_step
from lightbert.train.compiled_code import keep_compiled_code

_KERNEL, _MEMSET = 0, 2
"""Types of nodes."""
_POINTER, _SIZE, _NUMBER = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint

_FILL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 target, .param .u32 words, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<7>;
  .reg .b64 %d<5>;
  ld.param.u64 %d1, [target];
  ld.param.u32 %r1, [words];
  ld.param.u32 %r2, [value];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 ret;
  cvta.to.global.u64 %d2, %d1;
  mul.wide.u32 %d3, %r6, 4;
  add.s64 %d4, %d2, %d3;
  st.global.u32 [%d4], %r2;
  ret;
}
"""


class _Memset(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.c_uint64),
        ("pitch", _SIZE),
        ("value", _NUMBER),
        ("element", _NUMBER),
        ("width", _SIZE),
        ("height", _SIZE),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("function", _POINTER),
        ("grid", _NUMBER * 3),
        ("block", _NUMBER * 3),
        ("shared", _NUMBER),
        ("parameters", ctypes.POINTER(_POINTER)),
        ("extra", _POINTER),
    ]


class _LaunchWithKernel(ctypes.Structure):
    _fields_ = [*_Launch._fields_, ("kernel", _POINTER), ("context", _POINTER)]


@dataclass
class Found:
    """The memset nodes of a graph."""

    sizes: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    replaced: int = 0


class Driver:
    """What is needed of CUDA's driver interface, in the current context."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        module, self.fill = _POINTER(), _POINTER()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_FILL))
        self._call("cuModuleGetFunction", ctypes.byref(self.fill), module, b"fill")

    def memsets(self, graph: int, *, replace: bool) -> Found:
        """List the memset nodes of a graph before it is instantiated; replace those of contiguous words by kernels."""
        found = Found()
        for node in self._list("cuGraphGetNodes", graph):
            if self._kind(node) != _MEMSET:
                continue
            memset = _Memset()
            self._call("cuGraphMemsetNodeGetParams", _POINTER(node), ctypes.byref(memset))
            found.sizes[f"{memset.height} × {memset.width} × {memset.element} bytes of {memset.value}"] += 1
            before = self._list("cuGraphNodeGetDependencies", node)
            after = self._list("cuGraphNodeGetDependentNodes", node)
            found.before.update(map(self._name, before))
            found.after.update(map(self._name, after))
            count = memset.element * memset.width
            if replace and memset.height == 1 and count % 4 == memset.target % 4 == 0:
                self._replace(graph, node, memset, before, after)
                found.replaced += 1
        return found

    def _replace(self, graph: int, node: int, memset: _Memset, before: list[int], after: list[int]) -> None:
        repeated = {1: 0x01010101, 2: 0x00010001, 4: 1}[memset.element]
        words = memset.element * memset.width // 4
        values = ctypes.c_uint64(memset.target), _NUMBER(words), _NUMBER(memset.value * repeated & 0xFFFFFFFF)
        parameters = (_POINTER * 3)(*(ctypes.addressof(value) for value in values))
        threads = min(256, max(32, words))
        launch = _Launch(self.fill, (-(-words // threads), 1, 1), (threads, 1, 1), 0, parameters, None)
        new = _POINTER()
        self._call(
            "cuGraphAddKernelNode",
            ctypes.byref(new),
            _POINTER(graph),
            _nodes(before),
            _SIZE(len(before)),
            ctypes.byref(launch),
        )
        sources = _nodes([new.value or 0] * len(after))
        self._call("cuGraphAddDependencies", _POINTER(graph), sources, _nodes(after), _SIZE(len(after)))
        self._call("cuGraphDestroyNode", _POINTER(node))

    def _kind(self, node: int) -> int:
        kind = ctypes.c_int()
        self._call("cuGraphNodeGetType", _POINTER(node), ctypes.byref(kind))
        return kind.value

    def _name(self, node: int) -> str:
        if self._kind(node) != _KERNEL:
            return f"node of type {self._kind(node)}"
        launch, name = _LaunchWithKernel(), ctypes.c_char_p()
        self._call("cuGraphKernelNodeGetParams_v2", _POINTER(node), ctypes.byref(launch))
        if launch.function:
            self._call("cuFuncGetName", ctypes.byref(name), _POINTER(launch.function))
        else:
            self._call("cuKernelGetName", ctypes.byref(name), _POINTER(launch.kernel))
        return (name.value or b"").decode()[:60]

    def _list(self, function: str, owner: int) -> list[int]:
        count = _SIZE()
        self._call(function, _POINTER(owner), None, ctypes.byref(count))
        found = _nodes([0] * count.value)
        self._call(function, _POINTER(owner), found, ctypes.byref(count))
        return [node or 0 for node in found][: count.value]

    def _call(self, function: str, *arguments: Any) -> None:
        if code := getattr(self.library, function)(*arguments):
            raise RuntimeError(f"{function} returned {code}")


def _nodes(values: Sequence[int]) -> Any:
    return (_POINTER * max(1, len(values)))(*values)


def captured(work: Callable[[], object], driver: Driver, *, replace: bool) -> torch.cuda.CUDAGraph:
    """Capture a call of a function, and print the memset nodes."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.graph(graph):
        work()
    torch._C._cuda_clearCublasWorkspaces()
    found = driver.memsets(graph.raw_cuda_graph(), replace=replace)
    graph.instantiate()
    print(f"{found.sizes.total()} memset nodes, {found.replaced} replaced: {found.sizes.most_common(5)}")
    print(f"  before them {found.before.most_common(5)}\n  after them {found.after.most_common(5)}", flush=True)
    return graph


def check(driver: Driver) -> None:
    """Check that a graph with kernels in place of memset nodes computes the same."""
    numbers = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        numbers.zero_()
        results = numbers + 1
    assert driver.memsets(graph.raw_cuda_graph(), replace=True).replaced == 1
    graph.instantiate()
    numbers.fill_(5.0)
    graph.replay()
    assert (numbers.sum().item(), results.sum().item()) == (0, 1000)


def main() -> None:
    """Print the times of each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--blas", help="cublas or cublaslt; by default PyTorch's choice")
    given = parser.parse_args()
    if given.blas:
        torch.backends.cuda.preferred_blas_library(given.blas)
    device = torch.device("cuda")
    torch.zeros(1, device=device)
    driver = Driver()
    check(driver)
    keep_compiled_code()
    case = next(case for case in CASES if case.name == given.case.replace("x", "×"))
    work = (whole_step if case.rtd else our_pass)(case, device)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    variants = {"memsets": False, "kernels": True, "memsets, captured again": False}
    graphs = {name: captured(work, driver, replace=replace) for name, replace in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    order, drawn = [*graphs], random.Random(0)
    for _ in range(given.rounds):
        drawn.shuffle(order)
        for name in order:
            times[name].append(_milliseconds(graphs[name], given.calls))
    for name, taken in times.items():
        more = [one - other for one, other in zip(taken, times["memsets"], strict=True)]
        print(f"{name}: median {median(taken):.3f} ms, {mean(more):+.4f} ± {stdev(more) / len(more) ** 0.5:.4f}")


def _milliseconds(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls


if __name__ == "__main__":
    main()
