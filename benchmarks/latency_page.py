"""Latencies of the papers' tables next to ours, as a page: `python -m benchmarks.latency_page --out FILE`."""

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from benchmarks.latency import RUNTIMES, Settings, measure, relative_time
from benchmarks.latency_files import folder_of_files, write_slow_files
from benchmarks.latency_limits import AIMS, EXECUTORCH_AIMS, Aim, outcomes, section
from benchmarks.pages import commit, run_main, versions
from lightbert.deploy.latency import Latency, Measurement
from lightbert.errors import required
from lightbert.files import write_atomic

_TABLE_RUNTIMES = ("onnx", "int8")


@dataclass(frozen=True)
class Row:
    """A row of a paper's table: our model, and the paper's milliseconds."""

    label: str
    model: str
    paper: float


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper; ratios are those to its first row."""

    title: str
    setting: str
    length: int
    rows: tuple[Row, ...]


TABLES = (
    PaperTable(
        "ConvBERT Table 9: one block of the base size",
        "Paper: Intel i7-6900K, milliseconds per sample. Ours: four blocks without feed-forwards, 512 tokens.",
        512,
        (
            Row("self-attention", "attention-block", 17.66),
            Row("mixed attention", "mixed-block", 12.94),
        ),
    ),
    PaperTable(
        "MobileBERT Table 4: latency",
        "Paper: Pixel 4, 4 threads, TensorFlow Lite, 128 tokens.",
        128,
        (
            Row("BERT-base", "bert-base", 342),
            Row("MobileBERT", "mobilebert", 62),
            Row("MobileBERT-TINY", "mobilebert-tiny", 40),
        ),
    ),
    PaperTable(
        "MobileBERT Table 7: norms and activations",
        "Paper: as in Table 4.",
        128,
        (
            Row("LayerNorm, gelu", "mobilebert-no-opt", 192),
            Row("LayerNorm, relu", "mobilebert:norm=layer", 167),
            Row("NoNorm, gelu", "mobilebert:activation=gelu_tanh", 92),
            Row("NoNorm, relu", "mobilebert", 62),
        ),
    ),
)


def page(
    tables: Sequence[PaperTable],
    aims: Sequence[Aim],
    models: Sequence[str] = (),
    *,
    threads: Sequence[int],
    rounds: int,
    command: str,
    keep: Path | None = None,
) -> str:
    """Return the page: all tables and models with the first number of threads, and all aims with each number.

    models: those that are measured in every runtime. keep: as in `measure`.
    """
    check_runtimes([runtime for _, runtime in _pairs(aims)])
    parts = [_introduction(threads, rounds, command)]
    with folder_of_files(keep) as folder:
        for table in tables:
            members = tuple(row.model for row in table.rows)
            found = measure(Settings(members, _TABLE_RUNTIMES, table.length, threads[0], rounds), folder)
            parts.append("\n".join(_section(table, found)))
        if models:
            parts.append(runtimes_section(models, folder, length=128, threads=threads[0], rounds=rounds))
        if aims:
            parts += [
                section(list(outcomes(aims, folder, threads=each, rounds=rounds)), _threads(each)) for each in threads
            ]
    return "\n".join(parts)


def write_files(aims: Sequence[Aim], models: Sequence[str], keep: Path) -> None:
    """Write the files of the page that take minutes, without measuring anything."""
    check_runtimes([runtime for _, runtime in _pairs(aims)])
    with folder_of_files(keep) as folder:
        write_slow_files([*product(models, available_runtimes()), *_pairs(aims)], folder)


def _pairs(aims: Sequence[Aim]) -> list[tuple[str, str]]:
    return [(each.model, each.runtime) for aim in aims for each in (aim.ours, aim.other)]


def _threads(count: int) -> str:
    return {0: "a thread per core", 1: "one thread"}.get(count, f"{count} threads")


def _introduction(threads: Sequence[int], rounds: int, command: str) -> str:
    found = versions("torch", "onnxruntime", "executorch", "transformers")
    packages = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    # With one thread the CPU time, which other processes disturb less.
    time = ", ".join(f"{'CPU' if count == 1 else 'wall'} time with {_threads(count)}" for count in threads)
    return (
        f"# Latency\n\nWritten by `{command}` at commit {commit()}; don't edit. Machine: {platform.machine()}, "
        f"{os.cpu_count()} cores, load average {load}; {packages}; one text, random weights. Times are medians of "
        f"{rounds} rounds, in which all models of a table run alternately: {time}. The tables of the papers are "
        f"measured with {_threads(threads[0])}; ratios are those to the first row, smaller is faster. int8 is "
        "dynamic.\n"
    )


def _section(table: PaperTable, found: Latency) -> Iterator[str]:
    yield f"## {table.title}\n{table.setting}\n"
    yield "| | paper ms | ratio | float32 ms | ratio | int8 ms | ratio |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    first, threads = table.rows[0], found.settings.threads
    for row in table.rows:
        cells = [f"{row.paper:g}", f"{row.paper / first.paper:.2f}"]
        for runtime in _TABLE_RUNTIMES:
            ours, reference = (_measurement(found, each.model, runtime) for each in (row, first))
            cells += [
                f"{_time(ours, found):.1f}",
                f"{relative_time(ours, threads) / relative_time(reference, threads):.2f}",
            ]
        yield f"| {row.label} | {' | '.join(cells)} |"
    yield ""


def _measurement(found: Latency, model: str, runtime: str) -> Measurement:
    return next(each for each in found.rows if (each.model, each.runtime) == (model, runtime))


def _time(row: Measurement, found: Latency) -> float:
    """With one thread the CPU time, which other processes disturb less."""
    return row.cpu if found.settings.threads == 1 else row.milliseconds


MODELS = ("bert-base", "convbert-base", "convbert-small", "mobilebert")

_PACKAGES = {
    "executorch": "executorch",
    "executorch-int8": "executorch",
    "peer": "transformers",
    "peer-onnx": "onnxscript",
    "peer-int8": "onnxscript",
}
"""The optional package of a runtime."""


def check_runtimes(runtimes: Sequence[str]) -> None:
    """Raise `InputError` if the package of a runtime is missing, before anything is measured."""
    for runtime in runtimes:
        if package := _PACKAGES.get(runtime):
            with required(f"the runtime {runtime} requires {package}", package):
                import_module(package)


def available_runtimes() -> tuple[str, ...]:
    """The runtimes whose packages are installed."""
    return tuple(name for name in RUNTIMES if name not in _PACKAGES or find_spec(_PACKAGES[name]))


def runtimes_section(models: Sequence[str], folder: Path, *, length: int, threads: int, rounds: int) -> str:
    """Measure each model in every available runtime, all of them alternately; in Markdown. Files are kept."""
    runtimes = available_runtimes()
    found = [measure(Settings((model,), runtimes, length, threads, rounds), folder) for model in models]
    return "\n".join([*_heading(length, runtimes), *(row for each in found for row in _rows(each)), ""])


def _heading(length: int, runtimes: Sequence[str]) -> Iterator[str]:
    missing = [name for name in RUNTIMES if name not in runtimes]
    yield "## Every runtime"
    yield f"{length} tokens; ratios are those to the same model in eager PyTorch. MB: the weights, or the file."
    if missing:
        yield f"Not installed, and not measured: {', '.join(missing)}."
    yield ""
    yield "| model | runtime | wall ms | CPU ms | ratio | MB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"


def _rows(found: Latency) -> Iterator[str]:
    for row in found.rows:
        ratio = f"{relative_time(row, found.settings.threads):.2f}"
        cells = (f"{row.milliseconds:.1f}", f"{row.cpu:.1f}", ratio, f"{row.megabytes:.1f}")
        yield f"| {row.model} | {RUNTIMES[row.runtime]} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and write the page, or only write the files of its models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="the Markdown file to write; not used with --files-only")
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=[1],
        help="threads of an operator, one or several numbers; 0: one per core",
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the files of models that take minutes to write, those of ExecuTorch and of torch.onnx, in this "
        "folder, and use those that are there if they fit the code, the weights and the packages",
    )
    parser.add_argument(
        "--files-only",
        action="store_true",
        help="write these files to the folder of --keep, and measure nothing; use it on a busy machine",
    )
    arguments = parser.parse_args()
    if arguments.files_only and arguments.keep is None:
        parser.error("--files-only requires --keep FOLDER")
    if not arguments.files_only and arguments.out is None:
        parser.error("--out FILE is required; give --keep FOLDER --files-only to write only the files of models")
    options = " ".join(sys.argv[1:])
    aims = (*AIMS, *(aim for aim in EXECUTORCH_AIMS if aim.runtimes <= set(available_runtimes())))
    if arguments.files_only:
        write_files(aims, MODELS, arguments.keep)
        return
    content = page(
        TABLES,
        aims,
        MODELS,
        threads=arguments.threads,
        rounds=arguments.rounds,
        command=f"python -m benchmarks.latency_page {options}",
        keep=arguments.keep,
    )
    write_atomic(arguments.out, content)


if __name__ == "__main__":
    run_main(main)
