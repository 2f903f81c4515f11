"""Latency of one text on a CPU: torch, ONNX Runtime in float32 and int8, and transformers' models in the same run."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lightbert.bench.latency_models import encoder_of, transformers_encoder
from lightbert.bench.peer_files import exported_peer, quantized_peer
from lightbert.deploy.export import export_content
from lightbert.errors import InputError, unknown
from lightbert.nn.encoder import Encoder
from lightbert.progress import progress
from lightbert.tasks.predict.onnx_runtime import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

RUNTIMES = {
    "torch": "PyTorch, eager",
    "compiled": "PyTorch, torch.compile for this length",
    "onnx": "ONNX Runtime, float32",
    "int8": "ONNX Runtime, int8 dynamic",
    "peer": "transformers, eager",
    "peer-onnx": "transformers, exported by torch.onnx, float32",
    "peer-int8": "the same, quantized by ONNX Runtime's quantize_dynamic",
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


def measure(settings: Settings) -> Latency:
    """Build every model in every runtime, then run them alternately."""
    with _threads(settings.threads), torch.inference_mode():
        candidates = list(_candidates(settings))
        for candidate in candidates:
            for _ in range(_WARM):
                candidate.run()
        walls, cpus = [], []
        with progress("latency", total=settings.rounds, unit="rounds") as bar:
            for _ in range(settings.rounds):
                times = [_timed(candidate.run) for candidate in candidates]
                walls.append([wall for wall, _ in times])
                cpus.append([cpu for _, cpu in times])
                bar.advance()
    wall, cpu = np.array(walls), np.array(cpus)
    rows = [
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
    return Latency(settings, tuple(rows))


def _candidates(settings: Settings) -> Iterator[_Candidate]:
    ids = np.random.default_rng(0).integers(5, 1000, (1, settings.length))
    inputs = (ids, np.ones_like(ids, dtype=np.bool_), np.zeros_like(ids))
    with progress("building", total=len(settings.models) * len(settings.runtimes), unit="models") as bar:
        for model in settings.models:
            encoder = encoder_of(model)
            if encoder.positions and settings.length > encoder.positions:
                raise InputError(f"length must be <= {encoder.positions}, the positions of {model}")
            for runtime in settings.runtimes:
                yield _candidate(model, runtime, encoder, inputs, settings.threads)
                bar.advance()


def _candidate(model: str, runtime: str, encoder: Encoder, inputs: tuple[Any, ...], threads: int) -> _Candidate:
    tensors = [torch.from_numpy(each) for each in inputs]
    weights = sum(each.numel() * each.element_size() for each in encoder.parameters()) / 1e6
    if runtime in ("torch", "compiled"):
        # One text has no padding, so it needs no mask.
        module = torch.compile(encoder, dynamic=False) if runtime == "compiled" else encoder
        return _Candidate(model, runtime, lambda: module(tensors[0], None, tensors[2]), weights)
    if runtime in ("onnx", "int8"):
        content = export_content(encoder, int8=runtime == "int8")
    else:
        peer = transformers_encoder(model)
        if runtime == "peer":
            return _Candidate(model, runtime, lambda: peer(*tensors), weights)
        content = exported_peer(peer, encoder.positions)
        content = quantized_peer(content) if runtime == "peer-int8" else content
    session = Session(content, threads)
    return _Candidate(model, runtime, lambda: session(*inputs), len(content) / 1e6)


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
