"""Training speed on a GPU: encoders forward and backward, and whole RTD steps, next to transformers in the same run.

Each row is captured as a CUDA graph, so that times exclude Python, and timed by the median of its replays; fine-tuning
runs as in the training loop, Python included. The least times follow from ceilings measured in the same run: a large
matmul for FLOPs, a large elementwise kernel for the bytes that fused kernels would move. Several processes compile the
cases first, because most of the time goes into it; then they are timed one by one, with the machine to themselves.
"""

import argparse
import gc
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from benchmarks.gpu import Kernel, by_kind, copy_bandwidth, matmul_rate, microseconds, profiled
from benchmarks.pages import check_page, commit, run_main
from benchmarks.training_cases import CASES, Case, Work, make, matching, matmul_flops, moved_bytes, their_pass
from lightbert.commands.report import show
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.ops import backend
from lightbert.progress import progress
from lightbert.train.compilation import keep_compiled_code

if TYPE_CHECKING:
    from rich.console import RenderableType

_WARM = 3
_PROFILED = 3
"""Steps."""
_CPU_REPEATS = 3
_FINETUNING_STEPS = 400
"""Steps before the measurement, until every width is captured, and steps that are measured."""
_COMPILING = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Processes that compile at the same time."""
_OF_ONE_FAMILY = {"relu_feedforward": "mobilebert"}
"""Kernels that the models of one family use."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    cases: those whose name contains this text.
    kernels: a selection of Triton kernels as in LIGHTBERT_KERNELS, whose value is the default; "each" measures whole
    steps with all kernels, with all but one for each of them, and with none.
    seconds: nothing is compiled after this time; what is compiled is timed, which takes seconds per case.
    longest: the number of kernels that are listed by name.
    """

    cases: str = ""
    kernels: str = ""
    peers: bool = True
    seconds: float = 300.0
    longest: int = 0
    device: str = "cuda"


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
    longest: tuple[Kernel, ...] = ()
    """The longest kernels by name."""

    @property
    def cells(self) -> list[str]:
        """Case, library, milliseconds, million tokens/s and GiB."""
        library = self.library if self.captured else f"{self.library} (not captured)"
        numbers = f"{self.milliseconds:.2f}", f"{self.tokens_per_second / 1e6:.3f}", f"{self.gibibytes:.1f}"
        return [self.case, library, *numbers]


Limit = Literal["at least", "at most", ""]


@dataclass(frozen=True)
class Figure:
    """A figure with its target; ``limit`` "" means that there is none."""

    what: str
    value: float
    unit: str = ""
    limit: Limit = ""
    target: float = 0.0

    @property
    def outcome(self) -> str:
        """Return "reached" or "missed"; "" without a target."""
        if not self.limit:
            return ""
        reached = self.value >= self.target if self.limit == "at least" else self.value <= self.target
        return "reached" if reached else "missed"

    @property
    def cells(self) -> list[str]:
        """The figure, its value, the target in words such as "at least 3.5", and the outcome."""
        goal = f"{self.limit} {self.target:g}" if self.limit else ""
        return [self.what, f"{self.value:.2f} {self.unit}".rstrip(), goal, self.outcome]


_SPEEDS = {
    "convbert-small 1024×128": 3.5,
    "convbert-small 128×128": 2.5,
    "convbert-small 128×512": 3.1,
    "mobilebert 512×128": 1.8,
    "convbert-base 256×128": 0.8,
    "convbert-small 1024×128, RTD step on two streams": 3.0,
    "convbert-small 256×128, RTD step on two streams": 2.4,
}
"""Million tokens/s."""
_MEMORY = {"convbert-small 1024×128": 13.0, "mobilebert 512×128": 14.0}
"""GiB."""
_STEP = "convbert-small 256×128, RTD step"
_RATIOS: tuple[tuple[str, str, str, Limit, float], ...] = (
    ("time of composite / absolute", "composite-small-absolute 1024×128", "composite-small 1024×128", "at most", 1.2),
    ("tokens/s of ConvBERT / BERT-small, 1024×128", "convbert-small 1024×128", "bert-small 1024×128", "at least", 1.0),
    ("tokens/s of ConvBERT / BERT-small, 128×512", "convbert-small 128×512", "bert-small 128×512", "at least", 1.0),
    ("tokens/s of ConvBERT / BERT-base", "convbert-base 256×128", "bert-base 256×128", "at least", 1.0),
    ("tokens/s of packed rows / rows of one text", f"{_STEP}, packed rows", _STEP, "at least", 0.95),
    ("tokens/s of two streams / one stream", f"{_STEP} on two streams", _STEP, "", 0.0),
)
"""Name, numerator and denominator of a ratio of tokens/s; a ratio of times has them exchanged."""
_FINETUNING = ("convbert-small, fine-tuning, batch 32", 90.0)


def figures(rows: Sequence[Row]) -> Iterator[Figure]:
    """Yield the figures whose rows were measured, each with its target."""
    ours = {row.case: row for row in rows if row.library == "lightbert"}
    for case, target in _SPEEDS.items():
        if case in ours:
            yield Figure(case, ours[case].tokens_per_second / 1e6, "million tokens/s", "at least", target)
    for case, target in _MEMORY.items():
        # 0 on a CPU, where memory is not measured.
        if case in ours and ours[case].gibibytes:
            yield Figure(case, ours[case].gibibytes, "GiB", "at most", target)
    for name, one, other, limit, target in _RATIOS:
        if one in ours and other in ours:
            yield Figure(name, ours[one].tokens_per_second / ours[other].tokens_per_second, "", limit, target)
    case, target = _FINETUNING
    if case in ours:
        yield Figure(case, 1e3 / ours[case].milliseconds, "steps/s", "at least", target)
    for row in rows:
        if row.library == "transformers":
            ratio = ours[row.case].tokens_per_second / row.tokens_per_second
            yield Figure(f"tokens/s of lightbert / transformers, {row.case}", ratio)


_COLUMNS = ("case", "library", "ms", "million tokens/s", "GiB", "ms of FLOPs", "ms of bytes", "share")


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
        targets = [{**asdict(figure), "outcome": figure.outcome} for figure in figures(self.rows)]
        return {"metrics": metrics, **asdict(self), "figures": targets}

    def cells(self, row: Row) -> list[str]:
        """The cells of a row, with the least times of its FLOPs and its bytes if they are known."""
        if not (row.flops and row.moved and self.matmul_tflops and self.copy_tbytes):
            return [*row.cells, "", "", ""]
        least = row.flops / (self.matmul_tflops * 1e9), row.moved / (self.copy_tbytes * 1e9)
        return [*row.cells, *(f"{part:.2f}" for part in least), f"{sum(least) / row.milliseconds:.0%}"]

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table(*_COLUMNS)
        table.title = f"{self.device}: {self.matmul_tflops:.0f} TFLOP/s in a matmul, {self.copy_tbytes:.2f} TB/s"
        for row in self.rows:
            table.add_row(*self.cells(row))
        if self.skipped:
            table.caption = f"skipped: {'; '.join(self.skipped)}"
        targets = Table("figure", "value", "target", "")
        for figure in figures(self.rows):
            targets.add_row(*figure.cells)
        kernels = Table("case", "longest kernels", "ms per step", "calls")
        for row in self.rows:
            for kernel in row.longest:
                kernels.add_row(row.case, kernel.name, f"{kernel.microseconds / 1e3:.3f}", str(kernel.calls))
        return Group(table, targets, kernels) if kernels.row_count else Group(table, targets)


def measure(settings: Settings, cases: tuple[Case, ...] = CASES) -> TrainingSpeed:
    """Time every case in lightbert, and in transformers if it has the model, until the time limit."""
    device = torch.device(settings.device)
    on_gpu = device.type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise InputError("the benchmark 'training' requires a GPU, but PyTorch finds none")
    work = [one for case in matching(settings.cases, cases) for one in _measurements(case, settings)]
    deadline = time.time() + settings.seconds
    rows: list[Row] = []
    skipped: list[str] = []
    if on_gpu:
        keep_compiled_code()
    compiled = _compile(work, device, deadline) if on_gpu else [True] * len(work)
    with progress("training speed", total=len(work), unit="measurements") as bar:
        for one, is_compiled in zip(work, compiled, strict=True):
            try:
                if not is_compiled or (not on_gpu and time.time() > deadline):
                    raise RuntimeError("time limit")
                rows.append(_row(one, device, settings.longest))
            except RuntimeError as error:
                # One failure must not lose the other measurements.
                skipped.append(f"{one.case.name} ({one.library}): {str(error).partition(chr(10))[0]}")
            _release_memory()
            bar.advance()
    rate, bandwidth = (matmul_rate(), copy_bandwidth()) if on_gpu else (0.0, 0.0)
    name = torch.cuda.get_device_name(device) if on_gpu else "CPU"
    return TrainingSpeed(name, rate / 1e12, bandwidth / 1e12, tuple(rows), tuple(skipped))


def _release_memory() -> None:
    """Free what a case leaves behind: graphs, compiled code, and the allocator's blocks."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _measurements(case: Case, settings: Settings) -> list[Measurement]:
    ours = [
        Measurement(case, f"lightbert, kernels: {kernels}" if kernels else "lightbert", make, kernels)
        for kernels in _selections(settings.kernels, case)
    ]
    has_peer = settings.peers and not (case.rtd or case.finetune or case.model.startswith("composite"))
    return [*ours, Measurement(case, "transformers", their_pass)] if has_peer else ours


def _selections(kernels: str, case: Case) -> list[str]:
    if kernels != "each":
        # Checked now, because a measurement comes late.
        if kernels:
            backend.selected(kernels)
        return [kernels]
    if not case.rtd:
        return [""]
    used = [op for op in backend.KERNELS if case.model.startswith(_OF_ONE_FAMILY.get(op, ""))]
    return ["all", *(f"all,-{op}" for op in used), "none"]


def _compile(work: Sequence[Measurement], device: torch.device, deadline: float) -> list[bool]:
    """Fill the compilers' caches, in a process for each measurement; False for those after the deadline."""
    with (
        progress("compiling", total=len(work), unit="cases") as bar,
        ProcessPoolExecutor(_COMPILING, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        started = [pool.submit(_run_once, one, device, deadline) for one in work]
        for _ in as_completed(started):
            bar.advance()
        # A process that was ended, for lack of memory, compiled nothing; its case is tried again.
        return [future.exception() is not None or future.result() for future in started]


def _run_once(one: Measurement, device: torch.device, deadline: float) -> bool:
    if time.time() > deadline:
        return False
    # A case that fails here raises its error when it is timed.
    with suppress(Exception), one.enabling():
        one.make(one.case, device)()
    return True


def _row(one: Measurement, device: torch.device, longest: int) -> Row:
    case = one.case
    with one.enabling():
        work = one.make(case, device)
        if device.type != "cuda":
            seconds, gibibytes, captured = _on_cpu(work), 0.0, False
        elif case.finetune:
            seconds, gibibytes, captured = _as_loop(work)
        else:
            seconds, gibibytes, captured = _on_gpu(work)
        # The steps of fine-tuning differ.
        is_profiled = device.type == "cuda" and not case.finetune and one.make is not their_pass
        kernels = profiled(work, device, _PROFILED) if is_profiled else []
    needed = (matmul_flops(case), moved_bytes(case))
    speed = (seconds * 1e3, case.tokens / seconds, gibibytes)
    return Row(case.name, one.library, *speed, *needed, captured, tuple(by_kind(kernels)), tuple(kernels[:longest]))


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


_KINDS = {
    "products": ("matrix products",),
    "attention": ("attention",),
    "convolutions": ("dynamic convolution", "depthwise convolution"),
    "norms": ("residual and norm",),
    "GELU, ReLU feed-forward": ("bias and GELU", "feed-forward"),
    "compiled": ("compiled",),
}
"""Kinds of kernels by column; the last column has the others."""


def page(speed: TrainingSpeed, command: str) -> str:
    """Return the page of a run."""
    parts = [_introduction(speed, command), *_table(_COLUMNS, [speed.cells(row) for row in speed.rows])]
    parts += [f"\nSkipped: {'; '.join(speed.skipped)}."] if speed.skipped else []
    parts += [
        "\n## Targets\n",
        *_table(("figure", "value", "target", ""), [each.cells for each in figures(speed.rows)]),
    ]
    return "\n".join([*parts, "", *_where_the_time_goes(speed)])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; all columns but the first two are numbers."""
    dashes = ["---" if place < 2 else "---:" for place in range(len(columns))]
    return [f"| {' | '.join(cells)} |" for cells in (columns, dashes, *rows)]


def _introduction(speed: TrainingSpeed, command: str) -> str:
    return f"""# Training speed

Written by `{command}` at commit {commit()}; don't edit. {speed.device}, torch {version("torch")}, bfloat16, compiled,
medians of captured steps; transformers in the same run. The encoder's rows are its forward and backward pass, an RTD
step is everything from masking to the optimizer; `lightbert pretrain` runs it on two streams if there is one GPU.
Ceilings measured in this run: {speed.matmul_tflops:.0f} TFLOP/s in a large matmul, {speed.copy_tbytes:.2f} TB/s in a
large elementwise kernel. The last three columns are the time of the FLOPs of matrix products and of the bytes that
fused memory-bound kernels would move at these ceilings, and their sum as a share of the measured time.
"""


def _where_the_time_goes(speed: TrainingSpeed) -> Iterator[str]:
    profiled = [row for row in speed.rows if row.kinds]
    if not profiled:
        return
    yield """## Where the time goes

Milliseconds on the GPU by kind of kernel, profiled in the same run with steps that are not captured, and the number of
kernels. "Compiled" are torch.compile's kernels between the others, "other" the optimizer, cross-entropy, sampling, sums
over programs, the gradient of embeddings and copies. The milliseconds of FLOPs above belong to products and attention,
those of bytes to everything else. The time between the kernels of a captured step is not included; on two streams,
kernels overlap.
"""
    yield f"| case | {' | '.join(_KINDS)} | other | in all | kernels |"
    yield f"| --- |{' ---: |' * (len(_KINDS) + 3)}"
    for row in profiled:
        taken = {kind.name: kind.microseconds / 1e3 for kind in row.kinds}
        total = sum(taken.values())
        columns = [sum(taken.get(kind, 0.0) for kind in kinds) for kinds in _KINDS.values()]
        cells = [f"{each:.2f}" if each else "" for each in (*columns, total - sum(columns), total)]
        name = row.case + row.library.removeprefix("lightbert")
        yield f"| {name} | {' | '.join(cells)} | {sum(kind.calls for kind in row.kinds)} |"
    yield ""


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, and write the page with --out."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="cases whose name contains this text; all if omitted")
    parser.add_argument(
        "--kernels",
        default="",
        help="Triton kernels: all, none, names such as all,-bias_gelu; each: whole steps with all, all but one, and "
        "none. By default LIGHTBERT_KERNELS",
    )
    parser.add_argument("--seconds", type=float, default=Settings.seconds, help="nothing is compiled after this time")
    parser.add_argument("--longest", type=int, default=0, help="also print this many kernels of each step by name")
    parser.add_argument("--out", type=Path, help="also write the tables to this Markdown file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.out is not None:
        check_page("--out", options.out)
    speed = measure(Settings(options.cases, options.kernels, seconds=options.seconds, longest=options.longest))
    if options.out is not None:
        write_atomic(options.out, page(speed, shlex.join(["python", "-m", "benchmarks.training", *arguments])))
    show(speed, json=options.json)


if __name__ == "__main__":
    run_main(main)
