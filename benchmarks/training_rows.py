"""Measurements of the training benchmark: on a GPU each in a process of its own.

Several are compiled at a time. All are timed, one after the other, when the last one is compiled: a first step that
another process runs on the GPU meanwhile would change the times. Until then they wait, with little memory on the GPU.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from benchmarks.gpu import Kernel, by_kind, microseconds, profiled
from benchmarks.kernel_cases import OPS, SIZES, Size
from benchmarks.kernels import SETS, necessary_bytes, prepared, time_variant, variants
from benchmarks.training_cases import Case, Work, matmul_flops, moved_bytes, their_pass
from lightbert.ops import backend
from lightbert.progress import Bar

_WARM = 3
_PROFILED = 3
"""Steps."""
_CPU_REPEATS = 3
_FINETUNING_STEPS = 400
"""Steps before the measurement, until every width is captured, and steps that are measured."""
_COMPILING = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Processes that compile at the same time."""
_MEMORY = 4 * 2**30
"""Bytes of main memory for each process that waits."""


Limit = Literal["at least", "at most", ""]


@dataclass(frozen=True)
class Figure:
    """A figure with its target; ``limit`` "" means that there is none."""

    what: str
    value: float
    unit: str = ""
    limit: Limit = ""
    target: float = 0.0
    cases: tuple[str, ...] = ()
    """The row of tokens/s, or the two rows of a ratio of them, ours; none for other figures of rows."""
    kernels: tuple[str, ...] = ()
    """The passes of our kernel that the figure is about; none if it is not about a kernel alone."""

    @property
    def verdict(self) -> str:
        """Return "reached" or "missed"; "" without a target."""
        if not self.limit:
            return ""
        reached = self.value >= self.target if self.limit == "at least" else self.value <= self.target
        return "reached" if reached else "missed"

    @property
    def goal(self) -> str:
        """The target in words, such as "at least 3.5"."""
        return f"{self.limit} {self.target:g}" if self.limit else ""


class _Order(NamedTuple):
    """Who compiles and who is timed when; shared by the processes of a round."""

    compiling: Any
    """A semaphore: held by the processes that compile."""
    compiled: Any
    """A semaphore that each process releases when it has compiled."""
    start: Any
    """An event: all have compiled."""
    turn: Any
    """A lock: held by the process that is timed."""


_order: _Order
_COMPILED, _LATE = "compiled", "time limit"


@dataclass(frozen=True)
class Row:
    """One case in one library."""

    case: str
    library: str
    milliseconds: float
    tokens_per_second: float
    gibibytes: float
    """The peak of allocated memory; 0 on a CPU."""
    flops: float
    """Of the matrix products; 0 if they are not counted."""
    moved: float
    """Bytes that fused memory-bound kernels would move; 0 if they are not counted."""
    captured: bool
    """Whether the work could be captured as a CUDA graph."""
    kinds: tuple[Kernel, ...] = ()
    """The kernels of a step by kind, the longest first; none on a CPU, for fine-tuning and for other libraries."""


@dataclass(frozen=True)
class Measurement:
    """A case in one library, with a selection of kernels; "" for those that are enabled anyway."""

    case: Case
    library: str
    make: Callable[[Case, torch.device], Work]
    kernels: str = ""

    def enabling(self) -> AbstractContextManager[None]:
        """A context in which the selected kernels are enabled."""
        return backend.enabling(self.kernels) if self.kernels else nullcontext()


@dataclass(frozen=True)
class Conditions:
    """What all measurements share; deadline: nothing is compiled after this time; what is compiled is timed."""

    device: torch.device
    deadline: float


def one_by_one(work: list[Measurement], shared: Conditions, bar: Bar) -> list[Row | str]:
    """Measure in this process; a string says why a measurement was skipped."""
    found: list[Row | str] = []
    for one in work:
        found.append(_LATE if time.time() > shared.deadline else _row(one, shared))
        bar.advance()
    return found


def in_processes(work: list[Measurement], shared: Conditions, bar: Bar) -> list[Row | str]:
    """Compile several measurements at a time, then time them one by one; fine-tuning is timed at the end."""
    found: list[Row | str] = []
    size = max(_COMPILING, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEMORY)
    for first in range(0, len(work), size):
        found += _together(work[first : first + size], shared, bar)
    for index, one in enumerate(work):
        if found[index] == _COMPILED:
            found[index] = _row(one, shared)
            bar.advance()
    return found


def _together(work: list[Measurement], shared: Conditions, bar: Bar) -> list[Row | str]:
    spawned = multiprocessing.get_context("spawn")
    order = _Order(spawned.Semaphore(_COMPILING), spawned.Semaphore(0), spawned.Event(), spawned.Lock())
    # A process ends after its measurement, with its memory on the GPU.
    with ProcessPoolExecutor(len(work), spawned, _take, (order,), max_tasks_per_child=1) as pool:
        started = []
        for one in work:
            started.append(pool.submit(_compile if one.case.finetune else _row_in_turn, one, shared))
            if not one.case.finetune:
                started[-1].add_done_callback(lambda _: bar.advance())
        for _ in work:
            # A process that ended early, for example for lack of memory, ends all.
            while not order.compiled.acquire(timeout=1.0) and not all(each.done() for each in started):
                pass
        order.start.set()
        return [each.result() for each in started]


def _take(order: _Order) -> None:
    """Store what the processes share."""
    global _order
    _order = order


def _compile(one: Measurement, shared: Conditions) -> str:
    """Fill the compilers' caches; a case that fails here raises its error when it is timed."""
    with suppress(Exception):
        return _compiled_in_turn(one, shared)[1]
    return _COMPILED


def _row_in_turn(one: Measurement, shared: Conditions) -> Row | str:
    try:
        work, state = _compiled_in_turn(one, shared)
        _order.start.wait()
        with _order.turn:
            return _row(one, shared, work) if state == _COMPILED else state
    except RuntimeError as error:
        # One failure must not lose the other measurements.
        return str(error).partition("\n")[0]


def _compiled_in_turn(one: Measurement, shared: Conditions) -> tuple[Work | None, str]:
    """Compile a case unless it is too late; no work if other processes need the memory: it is made when it is timed."""
    try:
        with _order.compiling:
            if time.time() > shared.deadline:
                return None, _LATE
            work = None
            with suppress(torch.cuda.OutOfMemoryError), one.enabling():
                made = one.make(one.case, shared.device)
                made()
                work = made
            torch.cuda.empty_cache()
            return work, _COMPILED
    finally:
        _order.compiled.release()


def _row(one: Measurement, shared: Conditions, work: Work | None = None) -> Row:
    """Time a case, whose work may exist already."""
    case, device = one.case, shared.device
    with one.enabling():
        work = work or one.make(case, device)
        if device.type != "cuda":
            seconds, gibibytes, captured = _on_cpu(work), 0.0, False
        elif case.finetune:
            seconds, gibibytes, captured = _as_loop(work)
        else:
            seconds, gibibytes, captured = _on_gpu(work)
        kinds = _kinds(one, device, work)
    torch._dynamo.reset()
    needed = (matmul_flops(case), moved_bytes(case))
    return Row(case.name, one.library, seconds * 1e3, case.tokens / seconds, gibibytes, *needed, captured, kinds)


def _kinds(one: Measurement, device: torch.device, work: Work) -> tuple[Kernel, ...]:
    """Profile a step; fine-tuning is left out, whose steps differ."""
    if device.type != "cuda" or one.case.finetune or one.make is their_pass:
        return ()
    return tuple(by_kind(profiled(work, device, _PROFILED)))


def _on_cpu(work: Work) -> float:
    work()
    start = time.perf_counter()
    for _ in range(_CPU_REPEATS):
        work()
    return (time.perf_counter() - start) / _CPU_REPEATS


def _as_loop(work: Work) -> tuple[float, float, bool]:
    """The seconds of a step that captures itself, its peak memory in GiB, and True."""
    torch.cuda.reset_peak_memory_stats()
    for timed in (False, True):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_FINETUNING_STEPS):
            work()
        torch.cuda.synchronize()
        if timed:
            taken = time.perf_counter() - start
    return taken / _FINETUNING_STEPS, torch.cuda.max_memory_allocated() / 2**30, True


def _on_gpu(work: Work) -> tuple[float, float, bool]:
    """The seconds of a call, its peak memory in GiB, and whether it could be captured."""
    torch.cuda.reset_peak_memory_stats()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(_WARM):
            work()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / 2**30
    try:
        return microseconds([work]) / 1e6, peak, True
    except RuntimeError:
        # Work that synchronises with the host can't be captured.
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10 * _WARM):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / (10 * _WARM), peak, False


_SHORT, _LONG = (next(size for size in SIZES if size.name == name) for name in ("small 1024x128", "small 128x512"))


@dataclass(frozen=True)
class KernelPass:
    """The forward or the backward pass of a kernel."""

    what: str
    microseconds: float
    flops: float
    moved: float
    """Bytes that it must read and write."""

    def least(self, rate: float, bandwidth: float) -> tuple[float, float]:
        """The microseconds of its FLOPs and of its bytes at these rates per second; one kernel can overlap both."""
        return 1e6 * self.flops / rate, 1e6 * self.moved / bandwidth


@dataclass(frozen=True)
class KernelsAlone:
    """Figures with their targets, and the passes that they are about."""

    figures: tuple[Figure, ...] = ()
    passes: tuple[KernelPass, ...] = ()

    def __add__(self, other: "KernelsAlone") -> "KernelsAlone":
        return KernelsAlone(self.figures + other.figures, self.passes + other.passes)


def kernels_alone(bandwidth: float) -> KernelsAlone:
    """Time the dynamic convolution next to transformers' and composite attention next to plain attention.

    bandwidth: bytes per second of a copy.
    """
    return _convolution(_SHORT, bandwidth) + _attention(_SHORT) + _attention(_LONG)


def _convolution(size: Size, bandwidth: float) -> KernelsAlone:
    times = _times("dynamic_conv", size, ("triton", "unfold eager", "unfold compiled"))
    forward_bytes, moved = _bytes("dynamic_conv", size)
    forward, ours = times["triton"]
    kernel = f"dynamic convolution {_shape(size)}"
    name, both = f"{kernel}, forward and backward", (f"{kernel}, forward", f"{kernel}, backward")
    share = moved / (ours / 1e6) / bandwidth
    # A multiply-add per tap, and two for the gradients.
    flops = 2.0 * size.batch * size.tokens * size.inner * size.taps
    return KernelsAlone(
        (
            Figure(f"time of transformers' / {name}", times["unfold eager"][1] / ours, "", "at least", 5.0),
            Figure(
                f"time of transformers', compiled / {name}", times["unfold compiled"][1] / ours, "", "at least", 5.0
            ),
            Figure(f"{name}, of the copy bandwidth", share, "", "at least", 0.6, kernels=both),
        ),
        (
            KernelPass(both[0], forward, flops, forward_bytes),
            KernelPass(both[1], ours - forward, 2 * flops, moved - forward_bytes),
        ),
    )


def _attention(size: Size) -> KernelsAlone:
    times = _times("relative_attention", size, ("triton", "without bias"))
    (forward, both), (plain_forward, plain_both) = times["triton"], times["without bias"]
    name, ours = f"time of composite / plain attention {_shape(size)}", f"composite attention {_shape(size)}"
    backward = (both - forward) / (plain_both - plain_forward)
    figures = (
        Figure(f"{name}, forward", forward / plain_forward, "", "at most", 1.3, kernels=(f"{ours}, forward",)),
        Figure(f"{name}, backward", backward, "", "at most", 1.5, kernels=(f"{ours}, backward",)),
    )
    passes: tuple[KernelPass, ...] = ()
    for kind, without in (("composite", ()), ("PyTorch's plain", ("by_query",))):
        first, all_ = times["without bias" if without else "triton"]
        forward_bytes, moved = _bytes("relative_attention", size, without)
        # Two products forward; five backward, which computes the scores again.
        product = 2.0 * size.batch * size.tokens**2 * size.width
        passes += (
            KernelPass(f"{kind} attention {_shape(size)}, forward", first, 2 * product, forward_bytes),
            KernelPass(f"{kind} attention {_shape(size)}, backward", all_ - first, 5 * product, moved - forward_bytes),
        )
    return KernelsAlone(figures, passes)


def _times(name: str, size: Size, wanted: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Microseconds of the forward pass, and of both passes, of some implementations of an op."""
    op, inputs = OPS[name]
    sets = [inputs(size) for _ in range(SETS)]
    return {
        each: time_variant(implementation, prepared(name, each, sets))
        for each, implementation in variants(name, op)
        if each in wanted
    }


def _bytes(name: str, size: Size, without: tuple[str, ...] = ()) -> tuple[int, int]:
    """The necessary bytes of the forward pass, and of both passes, of an op, perhaps without some of its inputs."""
    op, inputs = OPS[name]
    given = inputs(size)
    with torch.no_grad():
        out = op(**given)
    return necessary_bytes({each: tensor for each, tensor in given.items() if each not in without}, out)


def _shape(size: Size) -> str:
    return f"{size.batch}×{size.tokens}"
