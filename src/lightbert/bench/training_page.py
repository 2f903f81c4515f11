"""The training benchmark as a Markdown page."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from lightbert.bench.source_version import commit
from lightbert.bench.training import TrainingSpeed
from lightbert.bench.training_limits import missed_targets
from lightbert.files import write_atomic

_COLUMNS = {
    "products": ("matrix products",),
    "attention": ("attention",),
    "convolutions": ("dynamic convolution", "depthwise convolution"),
    "norms": ("residual and norm",),
    "GELU, ReLU feed-forward": ("bias and GELU", "feed-forward"),
    "compiled": ("compiled",),
}
"""Kinds of kernels by column; the last column has the others."""


def write(speed: TrainingSpeed, out: Path, command: str) -> None:
    """Write the page."""
    write_atomic(out, page(speed, command))


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
