"""Every runtime side by side, as a section of the page of latencies."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from lightbert.bench.latency import RUNTIMES, Latency, Settings, measure
from lightbert.errors import required

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
        # With one thread the CPU time, which other processes disturb less.
        ratio = row.cpu_ratio if found.settings.threads == 1 else row.ratio
        cells = (f"{row.milliseconds:.1f}", f"{row.cpu:.1f}", f"{ratio:.2f}", f"{row.megabytes:.1f}")
        yield f"| {row.model} | {RUNTIMES[row.runtime]} | {' | '.join(cells)} |"
