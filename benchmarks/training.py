"""Training speed on a GPU: encoders forward and backward, and whole RTD steps, next to transformers in the same run.

Each row is captured as a CUDA graph, so that times exclude Python, and timed by the median of its replays; fine-tuning
runs as in the training loop, Python included. The least times follow from ceilings measured in the same run, after all
rows: a large matmul for FLOPs, a large elementwise kernel for the bytes that fused kernels would move. On a GPU, every
case has a process of its own: several compile at a time, because most of the time goes into it, and when all have, they
are timed one by one. Fine-tuning comes last, with the machine to itself. Kernels that have targets of their own are
timed alone, before everything else.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu import copy_bandwidth, matmul_rate
from benchmarks.pages import check_page, commit, run_main
from benchmarks.training_cases import CASES, Case, finetuning, matching, our_pass, their_pass, whole_step
from benchmarks.training_rows import (
    Conditions,
    Figure,
    KernelsAlone,
    Measurement,
    Row,
    in_processes,
    kernels_alone,
    one_by_one,
)
from benchmarks.training_targets import figures, missed_targets
from lightbert.commands.report import show
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.ops import backend
from lightbert.progress import progress
from lightbert.train.compilation import keep_compiled_code

if TYPE_CHECKING:
    from rich.console import RenderableType


_NOT_IN_TRANSFORMERS = ("composite",)
_OF_ONE_FAMILY = {"relu_feedforward": "mobilebert"}
"""Kernels that the models of one family use."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    cases: those whose name contains this text; without one, also kernels alone.
    kernels: a selection of Triton kernels as in LIGHTBERT_KERNELS, whose value is the default; "each" measures whole
    steps with all kernels, with all but one for each of them, and with none.
    seconds: nothing is compiled after this time; what is compiled is timed, which takes a few seconds per case.
    """

    cases: str = ""
    kernels: str = ""
    peers: bool = True
    seconds: float = 480.0
    device: str = "cuda"


@dataclass(frozen=True)
class TrainingSpeed:
    """All rows of one run, and the ceilings of the device."""

    device: str
    matmul_tflops: float
    copy_tbytes: float
    rows: tuple[Row, ...]
    skipped: tuple[str, ...] = ()
    kernels: KernelsAlone = field(default_factory=KernelsAlone)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        metrics = {f"{row.case}/{row.library}": row.tokens_per_second for row in self.rows}
        targets = [{**asdict(figure), "verdict": figure.verdict} for figure in self.figures]
        return {"metrics": metrics, **asdict(self), "figures": targets}

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Figures that follow from the rows, and those of kernels, with their targets."""
        return (*figures(self.rows), *self.kernels.figures)

    def least(self, row: Row) -> tuple[float, float]:
        """The milliseconds of a row's FLOPs and of its bytes at the ceilings; 0 if they are unknown."""
        ceilings = (self.matmul_tflops * 1e9, self.copy_tbytes * 1e9)
        products, bytes_moved = (
            n / limit if limit else 0.0 for n, limit in zip((row.flops, row.moved), ceilings, strict=True)
        )
        return products, bytes_moved

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table("case", "library", "ms", "million tokens/s", "GiB", "ms of FLOPs", "ms of bytes")
        table.title = f"{self.device}: {self.matmul_tflops:.0f} TFLOP/s in a matmul, {self.copy_tbytes:.2f} TB/s"
        for row in self.rows:
            library = row.library if row.captured else f"{row.library} (not captured)"
            least = [f"{each:.2f}" if each else "" for each in self.least(row)]
            speed = f"{row.tokens_per_second / 1e6:.3f}"
            table.add_row(row.case, library, f"{row.milliseconds:.2f}", speed, f"{row.gibibytes:.1f}", *least)
        if self.skipped:
            table.caption = f"skipped: {'; '.join(self.skipped)}"
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
    work = [one for case in matching(settings.cases, cases) for one in _measurements(case, settings)]
    deadline = time.time() + settings.seconds
    kernels = KernelsAlone()
    if on_gpu:
        keep_compiled_code()
        if not settings.cases:
            kernels = kernels_alone(copy_bandwidth())
    with progress("training speed", total=len(work), unit="measurements") as bar:
        measured = in_processes if on_gpu else one_by_one
        found = measured(work, Conditions(device, deadline), bar)
    # Now that no other process uses the GPU.
    rate, bandwidth = (matmul_rate(), copy_bandwidth()) if on_gpu else (0.0, 0.0)
    rows = [row for row in found if isinstance(row, Row)]
    skipped = [
        f"{one.case.name} ({one.library}): {row}" for one, row in zip(work, found, strict=True) if isinstance(row, str)
    ]
    name = torch.cuda.get_device_name(device) if on_gpu else "CPU"
    return TrainingSpeed(name, rate / 1e12, bandwidth / 1e12, tuple(rows), tuple(skipped), kernels)


def _measurements(case: Case, settings: Settings) -> list[Measurement]:
    make = finetuning if case.finetune else whole_step if case.rtd else our_pass
    ours = [
        Measurement(case, f"lightbert, kernels: {kernels}" if kernels else "lightbert", make, kernels)
        for kernels in _selections(settings.kernels, case)
    ]
    has_peer = make is our_pass and settings.peers and not case.model.startswith(_NOT_IN_TRANSFORMERS)
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


_COLUMNS = {
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
    sections = (_rows(speed), _figures(speed), missed_targets(speed), _alone(speed), _kinds(speed))
    return "\n".join([_introduction(speed, command), *(line for section in sections for line in section)])


def _introduction(speed: TrainingSpeed, command: str) -> str:
    return f"""# Training speed

Written by `{command}` at commit {commit()}; don't edit. {speed.device}, torch {version("torch")}, bfloat16, compiled,
medians of captured steps; transformers in the same run. The encoder's rows are its forward and backward pass, an RTD
step is everything from masking to the optimizer; `lightbert pretrain` runs it on two streams if there is one GPU.
Ceilings measured in this run: {speed.matmul_tflops:.0f} TFLOP/s in a large matmul, {speed.copy_tbytes:.2f} TB/s in a
large elementwise kernel. The last three columns are the time of the FLOPs of matrix products and of the bytes that
fused memory-bound kernels would move at these ceilings, and their sum as a share of the measured time.
"""


def _rows(speed: TrainingSpeed) -> Iterator[str]:
    yield "| case | library | ms | million tokens/s | GiB | ms of FLOPs | ms of bytes | share |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in speed.rows:
        library = row.library if row.captured else f"{row.library} (not captured)"
        least = speed.least(row)
        known = f"{least[0]:.2f} | {least[1]:.2f} | {sum(least) / row.milliseconds:.0%}" if all(least) else " | | "
        speed_text = f"{row.tokens_per_second / 1e6:.3f}"
        yield f"| {row.case} | {library} | {row.milliseconds:.2f} | {speed_text} | {row.gibibytes:.1f} | {known} |"
    if speed.skipped:
        yield f"\nSkipped: {'; '.join(speed.skipped)}."
    yield ""


def _figures(speed: TrainingSpeed) -> Iterator[str]:
    yield "## Targets\n"
    yield "| figure | value | target | |"
    yield "| --- | ---: | --- | --- |"
    for figure in speed.figures:
        value = f"{figure.value:.2f} {figure.unit}".rstrip()
        yield f"| {figure.what} | {value} | {figure.goal} | {figure.verdict} |"
    yield ""


def _alone(speed: TrainingSpeed) -> Iterator[str]:
    if not speed.kernels.passes:
        return
    yield """## Kernels alone

Without dropout and mask. The share is that of the larger of the two least times: one kernel can overlap both.
"""
    yield "| kernel | µs | µs of FLOPs | µs of bytes | share |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for each in speed.kernels.passes:
        products, bytes_moved = each.least(speed.matmul_tflops * 1e12, speed.copy_tbytes * 1e12)
        share = max(products, bytes_moved) / each.microseconds
        yield f"| {each.what} | {each.microseconds:.1f} | {products:.1f} | {bytes_moved:.1f} | {share:.0%} |"
    yield ""


def _kinds(speed: TrainingSpeed) -> Iterator[str]:
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
    yield f"| case | {' | '.join(_COLUMNS)} | other | in all | kernels |"
    yield f"| --- |{' ---: |' * (len(_COLUMNS) + 3)}"
    for row in profiled:
        taken = {kind.name: kind.microseconds / 1e3 for kind in row.kinds}
        total = sum(taken.values())
        columns = [sum(taken.get(kind, 0.0) for kind in kinds) for kinds in _COLUMNS.values()]
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
    parser.add_argument("--out", type=Path, help="also write the tables to this Markdown file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.out is not None:
        check_page("--out", options.out)
    speed = measure(Settings(cases=options.cases, kernels=options.kernels, seconds=options.seconds))
    if options.out is not None:
        write_atomic(options.out, page(speed, shlex.join(["python", "-m", "benchmarks.training", *arguments])))
    show(speed, json=options.json)


if __name__ == "__main__":
    run_main(main)
