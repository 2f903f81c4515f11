"""The training benchmark as a Markdown page."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from lightbert.bench.source_version import commit
from lightbert.bench.training import TrainingSpeed
from lightbert.errors import InputError
from lightbert.files import write_atomic


def check_target(out: Path) -> None:
    """Check, before minutes of measurements, that the page can be written."""
    if not out.parent.is_dir():
        raise InputError(f"--out must be a file in an existing folder, got '{out}'; create '{out.parent}'")


def write(speed: TrainingSpeed, out: Path, command: str) -> None:
    """Write the page."""
    write_atomic(out, page(speed, command))


def page(speed: TrainingSpeed, command: str) -> str:
    """Return the page of a run."""
    return "\n".join([_introduction(speed, command), *_rows(speed), *_figures(speed)])


def _introduction(speed: TrainingSpeed, command: str) -> str:
    return f"""# Training speed

Written by `{command}` at commit {commit()}; don't edit. {speed.device}, torch {version("torch")}, bfloat16, compiled,
medians of captured steps; transformers in the same run. The encoder's rows are its forward and backward pass, an RTD
step is everything from masking to the optimizer. Ceilings measured in this run: {speed.matmul_tflops:.0f} TFLOP/s in a
large matmul, {speed.copy_tbytes:.2f} TB/s in a large elementwise kernel. Shares count the FLOPs of matrix products, and
the bytes that fused memory-bound kernels would move.
"""


def _rows(speed: TrainingSpeed) -> Iterator[str]:
    yield "| case | library | ms | million tokens/s | GiB | of the matmul rate | of the bandwidth |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for row in speed.rows:
        library = row.library if row.captured else f"{row.library} (not captured)"
        shares = " | ".join(f"{share:.0%}" if share else "" for share in (row.share, row.bytes_share))
        speed_text = f"{row.tokens_per_second / 1e6:.3f}"
        yield f"| {row.case} | {library} | {row.milliseconds:.2f} | {speed_text} | {row.gibibytes:.1f} | {shares} |"
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
