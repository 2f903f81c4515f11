"""Training speed on a GPU: encoders forward and backward, and whole RTD steps, next to transformers in the same run.

Each row is captured as a CUDA graph, so that times exclude Python, and timed by the median of its replays; fine-tuning
runs as in the training loop, Python included. Shares are relative to ceilings measured in the same run: a large matmul
for FLOPs, a large elementwise kernel for the bytes that fused kernels would move. Before anything is timed, several
processes run every case once: most of the time goes into compilation, whose results they leave in the caches of PyTorch
and Triton.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from lightbert.bench.gpu_timing import copy_bandwidth, matmul_rate, microseconds
from lightbert.bench.training_cases import (
    CASES,
    Case,
    Work,
    finetuning,
    matmul_flops,
    moved_bytes,
    our_pass,
    their_pass,
    whole_step,
)
from lightbert.bench.training_targets import Figure, figures
from lightbert.errors import InputError
from lightbert.ops import backend
from lightbert.progress import progress
from lightbert.train.compiled_code import keep_compiled_code

if TYPE_CHECKING:
    from rich.console import RenderableType

_WARM = 3
_CPU_REPEATS = 3
_FINETUNING_STEPS = 400
"""Steps before the measurement, until every width is captured, and steps that are measured."""
_COMPILING_PROCESSES = max(1, min(8, (os.cpu_count() or 1) // 2))
_NOT_IN_TRANSFORMERS = ("composite",)


@dataclass(frozen=True)
class Settings:
    """What is measured.

    cases: those whose name contains this text.
    kernels: a selection of Triton kernels as in LIGHTBERT_KERNELS, whose value is the default; "each" measures whole
    steps with all kernels, with all but one for each of them, and with none.
    seconds: no measurement is started after this time.
    """

    cases: str = ""
    kernels: str = ""
    peers: bool = True
    seconds: float = 480.0
    device: str = "cuda"


@dataclass(frozen=True)
class Row:
    """One case in one library."""

    case: str
    library: str
    milliseconds: float
    tokens_per_second: float
    gibibytes: float
    """The peak of allocated memory; 0 on a CPU."""
    share: float
    """Of the measured matmul rate, by the FLOPs of the matrix products; 0 if they are not counted."""
    bytes_share: float
    """Of the measured bandwidth, by the bytes that fused memory-bound kernels would move; 0 if not counted."""
    captured: bool
    """Whether the work could be captured as a CUDA graph."""


@dataclass(frozen=True)
class TrainingSpeed:
    """All rows of one run, and the ceilings of the device."""

    device: str
    matmul_tflops: float
    copy_tbytes: float
    rows: tuple[Row, ...]
    skipped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        metrics = {f"{row.case}/{row.library}": row.tokens_per_second for row in self.rows}
        targets = [{**asdict(figure), "verdict": figure.verdict} for figure in self.figures]
        return {"metrics": metrics, **asdict(self), "figures": targets}

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Figures that follow from the rows, with their targets."""
        return figures(self.rows)

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table("case", "library", "ms", "million tokens/s", "GiB", "of the matmul rate", "of the bandwidth")
        table.title = f"{self.device}: {self.matmul_tflops:.0f} TFLOP/s in a matmul, {self.copy_tbytes:.2f} TB/s"
        for row in self.rows:
            library = row.library if row.captured else f"{row.library} (not captured)"
            shares = [f"{share:.0%}" if share else "" for share in (row.share, row.bytes_share)]
            speed = f"{row.tokens_per_second / 1e6:.3f}"
            table.add_row(row.case, library, f"{row.milliseconds:.2f}", speed, f"{row.gibibytes:.1f}", *shares)
        if self.skipped:
            table.caption = f"skipped at the time limit: {', '.join(self.skipped)}"
        targets = Table("figure", "value", "target", "")
        for figure in self.figures:
            targets.add_row(figure.what, f"{figure.value:.2f} {figure.unit}".rstrip(), figure.goal, figure.verdict)
        return Group(table, targets)


def measure(settings: Settings, cases: tuple[Case, ...] = CASES) -> TrainingSpeed:
    """Time every case in lightbert, and in transformers if it has the model, until the time limit."""
    device = torch.device(settings.device)
    on_gpu = device.type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise InputError("the benchmark 'training' requires a GPU, but PyTorch finds none")
    chosen = [case for case in cases if settings.cases in case.name]
    if not chosen:
        raise InputError(f"no case contains {settings.cases!r}; the cases are {', '.join(case.name for case in cases)}")
    rate, bandwidth = (matmul_rate(), copy_bandwidth()) if on_gpu else (0.0, 0.0)
    rows: list[Row] = []
    skipped: list[str] = []
    started = time.monotonic()
    work = [one for case in chosen for one in _measurements(case, settings)]
    if on_gpu:
        keep_compiled_code()
        _compile_ahead(work, device)
    with progress("training speed", total=len(work), unit="measurements") as bar:
        for one in work:
            if time.monotonic() - started > settings.seconds:
                skipped.append(f"{one.case.name} ({one.library})")
                continue
            rows.append(_row(one, device, (rate, bandwidth)))
            bar.advance()
    name = torch.cuda.get_device_name(device) if on_gpu else "CPU"
    return TrainingSpeed(name, rate / 1e12, bandwidth / 1e12, tuple(rows), tuple(skipped))


@dataclass(frozen=True)
class _Measurement:
    """A case in one library, with a selection of kernels; "" for those that are enabled anyway."""

    case: Case
    library: str
    make: Callable[[Case, torch.device], Work]
    kernels: str = ""

    def enabling(self) -> AbstractContextManager[None]:
        return backend.enabling(self.kernels) if self.kernels else nullcontext()


def _measurements(case: Case, settings: Settings) -> list[_Measurement]:
    make = finetuning if case.finetune else whole_step if case.rtd else our_pass
    ours = [
        _Measurement(case, f"lightbert, kernels: {kernels}" if kernels else "lightbert", make, kernels)
        for kernels in _selections(settings.kernels, case)
    ]
    has_peer = make is our_pass and settings.peers and not case.model.startswith(_NOT_IN_TRANSFORMERS)
    return [*ours, _Measurement(case, "transformers", their_pass)] if has_peer else ours


def _selections(kernels: str, case: Case) -> list[str]:
    if kernels != "each":
        # Checked now, because a measurement comes late.
        if kernels:
            backend.selected(kernels)
        return [kernels]
    if not case.rtd:
        return [""]
    return ["all", *(f"all,-{op}" for op in backend.KERNELS), "none"]


def _compile_ahead(work: list[_Measurement], device: torch.device) -> None:
    """Fill the compilers' caches; a case that fails here raises its error when it is timed."""
    spawned = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(_COMPILING_PROCESSES, spawned, max_tasks_per_child=1) as pool,
        progress("compiling", total=len(work), unit="measurements") as bar,
    ):
        for one in work:
            pool.submit(_run_once, one, device).add_done_callback(lambda _: bar.advance())


def _run_once(one: _Measurement, device: torch.device) -> None:
    with one.enabling():
        one.make(one.case, device)()
        torch.cuda.synchronize()


def _row(one: _Measurement, device: torch.device, ceilings: tuple[float, float]) -> Row:
    """Time a case; ceilings: FLOP/s and bytes per second, 0 if they were not measured."""
    case = one.case
    with one.enabling():
        work = one.make(case, device)
        if device.type != "cuda":
            seconds, gibibytes, captured = _on_cpu(work), 0.0, False
        elif case.finetune:
            seconds, gibibytes, captured = _as_loop(work)
        else:
            seconds, gibibytes, captured = _on_gpu(work)
    needed = (matmul_flops(case), moved_bytes(case))
    share, bytes_share = (n / seconds / limit if limit else 0.0 for n, limit in zip(needed, ceilings, strict=True))
    torch._dynamo.reset()
    return Row(case.name, one.library, seconds * 1e3, case.tokens / seconds, gibibytes, share, bytes_share, captured)


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
