"""Latency of one text on a CPU: torch, ONNX Runtime, ExecuTorch, and transformers' models in the same run."""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lightbert.bench.kept_files import folder_of_files
from lightbert.bench.latency_files import ONNX, Inputs, onnx_file, slow_file, text_of
from lightbert.bench.latency_models import encoder_of, transformers_encoder
from lightbert.bench.thread_process import call_with_threads
from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.nn.encoder import Encoder
from lightbert.processes import Report, has_threads
from lightbert.progress import progress
from lightbert.tasks.predict.exported import STATES
from lightbert.tasks.predict.onnx_runtime import Session
from lightbert.tasks.predict.program_runtime import PteRuntime

if TYPE_CHECKING:
    from rich.console import RenderableType

RUNTIMES = {
    "torch": "PyTorch, eager",
    "compiled": "PyTorch, torch.compile for this length",
    "onnx": "ONNX Runtime, float32",
    "int8": "ONNX Runtime, int8 dynamic",
    "executorch": "ExecuTorch with XNNPACK, float32",
    "executorch-int8": "ExecuTorch with XNNPACK, int8 dynamic",
    "peer": "transformers, eager",
    "peer-onnx": "transformers, exported by torch.onnx, float32",
    "peer-int8": "transformers, exported, and quantized by ONNX Runtime",
}
"""Name -> description."""

MODELS = ("bert-small", "convbert-small")
DEFAULT_RUNTIMES = ("torch", "onnx", "int8")

_WARM = 2


@dataclass(frozen=True)
class Settings:
    """What is measured; the first model in the first runtime is the reference of all ratios."""

    models: tuple[str, ...] = MODELS
    runtimes: tuple[str, ...] = DEFAULT_RUNTIMES
    length: int = 128
    threads: int = 0
    """0: the number of cores."""
    rounds: int = 10
    pairs: tuple[tuple[str, str], ...] = ()
    """Pairs of a model and a runtime that are measured; all if empty."""

    def __post_init__(self) -> None:
        for name in self.runtimes:
            if name not in RUNTIMES:
                raise unknown("runtime", name, RUNTIMES)
        for key, least in (("length", 1), ("threads", 0), ("rounds", 1)):
            if getattr(self, key) < least:
                raise InputError(f"{key} must be >= {least}, got {getattr(self, key)}")


@dataclass(frozen=True)
class Measurement:
    """One model in one runtime."""

    model: str
    runtime: str
    milliseconds: float
    """The median of the wall time."""
    cpu: float
    """The median of the CPU time of all threads in milliseconds, which other processes disturb less."""
    ratio: float
    """The median over rounds of the time relative to the reference in the same round."""
    cpu_ratio: float
    megabytes: float
    """The weights, or the file."""


@dataclass(frozen=True)
class Latency:
    """All measurements of one run."""

    settings: Settings
    rows: tuple[Measurement, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        metrics = {f"{row.model}/{row.runtime}": row.milliseconds for row in self.rows}
        return {"metrics": metrics, "settings": asdict(self.settings), "rows": [asdict(row) for row in self.rows]}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        settings, reference = self.settings, self.rows[0]
        table = Table("model", "runtime", "ms", "ratio", "CPU ms", "CPU ratio", "MB")
        table.title = (
            f"1 text of {settings.length} tokens, {settings.threads or 'all'} threads, median of {settings.rounds} "
            f"rounds; ratios to {reference.model}, {reference.runtime}"
        )
        for row in self.rows:
            table.add_row(
                row.model,
                row.runtime,
                f"{row.milliseconds:.1f}",
                f"{row.ratio:.2f}",
                f"{row.cpu:.1f}",
                f"{row.cpu_ratio:.2f}",
                f"{row.megabytes:.1f}",
            )
        return table


@dataclass(frozen=True)
class _Candidate:
    model: str
    runtime: str
    run: Callable[[], object]
    megabytes: float


def measure(settings: Settings, keep: Path | None = None) -> Latency:
    """Build every model in every runtime, then run them alternately.

    This happens in another process if this one was started with another number of threads.

    keep: the folder for files that take minutes to write; those that it has already are used.
    """
    with _shown(len(_pairs(settings)), settings.rounds) as report:
        if has_threads(settings.threads):
            rows = _measure(settings, keep, report)
        else:
            arguments = [to_mapping(settings), str(keep) if keep else ""]
            content = call_with_threads(f"{__name__}:measure_as_json", arguments, settings.threads, report)
            rows = [Measurement(**row) for row in json.loads(content)]
    return Latency(settings, tuple(rows))


def measure_as_json(report: Report, settings: dict[str, Any], keep: str) -> str:
    """Measure in this process, and return the rows as JSON."""
    rows = _measure(from_mapping(Settings, settings), Path(keep) if keep else None, report)
    return json.dumps([asdict(row) for row in rows])


@contextmanager
def _shown(models: int, rounds: int) -> Iterator[Report]:
    """Show progress, first in models that are built, then in rounds; yield a function that takes the sum of both."""
    with ExitStack() as stack:
        bar, start = stack.enter_context(progress("building", total=models, unit="models")), 0

        def report(done: int) -> None:
            nonlocal bar, start
            if start == 0 and done >= models:
                bar.advance(models - bar.done)
                stack.close()
                bar, start = stack.enter_context(progress("latency", total=rounds, unit="rounds")), models
            bar.advance(done - start - bar.done)

        yield report


def _measure(settings: Settings, keep: Path | None, report: Report) -> list[Measurement]:
    with _threads(settings.threads), torch.inference_mode(), folder_of_files(keep) as folder:
        candidates = []
        for candidate in _candidates(settings, folder):
            candidates.append(candidate)
            report(len(candidates))
        for candidate in candidates:
            for _ in range(_WARM):
                candidate.run()
        walls, cpus = [], []
        for number in range(settings.rounds):
            times = [_timed(candidate.run) for candidate in candidates]
            walls.append([wall for wall, _ in times])
            cpus.append([cpu for _, cpu in times])
            report(len(candidates) + number + 1)
    wall, cpu = np.array(walls), np.array(cpus)
    return [
        Measurement(
            model=candidate.model,
            runtime=candidate.runtime,
            milliseconds=statistics.median(wall[:, number]) * 1e3,
            cpu=statistics.median(cpu[:, number]) * 1e3,
            ratio=statistics.median(wall[:, number] / wall[:, 0]),
            cpu_ratio=statistics.median(cpu[:, number] / cpu[:, 0]),
            megabytes=candidate.megabytes,
        )
        for number, candidate in enumerate(candidates)
    ]


def _pairs(settings: Settings) -> tuple[tuple[str, str], ...]:
    return settings.pairs or tuple(product(settings.models, settings.runtimes))


def _candidates(settings: Settings, folder: Path) -> Iterator[_Candidate]:
    inputs = text_of(settings.length)
    for model, group in groupby(_pairs(settings), key=itemgetter(0)):
        encoder = encoder_of(model)
        if encoder.positions and settings.length > encoder.positions:
            raise InputError(f"length must be <= {encoder.positions}, the positions of {model}")
        for _, runtime in group:
            yield _candidate(model, runtime, encoder, inputs, settings.threads, folder)


def _candidate(model: str, runtime: str, encoder: Encoder, inputs: Inputs, threads: int, folder: Path) -> _Candidate:
    tensors = [torch.from_numpy(each) for each in inputs]
    weights = sum(each.numel() * each.element_size() for each in encoder.parameters()) / 1e6
    if runtime in ONNX:
        content = onnx_file(model, runtime, encoder, folder)
        session = Session(content, threads)
        return _Candidate(model, runtime, lambda: session(*inputs), len(content) / 1e6)
    if runtime == "peer":
        peer = transformers_encoder(model)
        return _Candidate(model, runtime, lambda: peer(*tensors), weights)
    if runtime in ("torch", "compiled"):
        # One text has no padding, so it needs no mask.
        module = torch.compile(encoder, dynamic=False) if runtime == "compiled" else encoder
        return _Candidate(model, runtime, lambda: module(tensors[0], None, tensors[2]), weights)
    path = slow_file(model, runtime, folder)
    program = PteRuntime(path, STATES, threads=threads)
    return _Candidate(model, runtime, lambda: program(*inputs), path.stat().st_size / 1e6)


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
