"""Latency of one text on a CPU in PyTorch, ONNX Runtime and ExecuTorch, with alternating rounds."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert import bundled
from lightbert.config import assignments, from_mapping, override, to_mapping
from lightbert.deploy import programs
from lightbert.deploy.onnx.lowering import lower
from lightbert.deploy.onnx.model import graph_of
from lightbert.deploy.quantization import calibrate
from lightbert.deploy.verification import Batch
from lightbert.errors import InputError, unknown
from lightbert.interop.load import describe, find
from lightbert.models import PRESETS, Config, build
from lightbert.nn.encoder import Encoder
from lightbert.progress import progress
from lightbert.tasks.predict.exported import STATES, PteRuntime, Session

if TYPE_CHECKING:
    from rich.console import RenderableType

RUNTIMES = {
    "torch": "PyTorch, eager",
    "compiled": "PyTorch, torch.compile for this length",
    "onnx": "ONNX Runtime, float32",
    "int8": "ONNX Runtime, int8 dynamic",
    "executorch": "ExecuTorch with XNNPACK, float32",
    "executorch-int8": "ExecuTorch with XNNPACK, int8 dynamic",
}
"""Name -> description."""

_WARMUP_CALLS = 2
_CALIBRATION = 32

Inputs = tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any]]
"""Ids, mask and segments [1, T]."""


@dataclass(frozen=True)
class Settings:
    """What is measured; the first model in the first runtime is the reference of all ratios."""

    known_runtimes: ClassVar[Mapping[str, str]] = RUNTIMES

    models: tuple[str, ...] = ("bert-small", "convbert-small")
    runtimes: tuple[str, ...] = ("torch", "onnx", "int8")
    length: int = 128
    threads: int = 0
    """0: the number of cores."""
    rounds: int = 10

    def __post_init__(self) -> None:
        for name in self.runtimes:
            if name not in self.known_runtimes:
                raise unknown("runtime", name, self.known_runtimes)
        for key, minimum in (("length", 1), ("threads", 0), ("rounds", 1)):
            if getattr(self, key) < minimum:
                raise InputError(f"{key} must be >= {minimum}, got {getattr(self, key)}")


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
            figures = (f"{row.milliseconds:.1f}", f"{row.ratio:.2f}", f"{row.cpu:.1f}", f"{row.cpu_ratio:.2f}")
            table.add_row(row.model, row.runtime, *figures, f"{row.megabytes:.1f}")
        return table


@dataclass(frozen=True)
class Candidate:
    """A model in a runtime, ready to run."""

    model: str
    runtime: str
    run: Callable[[], object]
    megabytes: float


def measure(settings: Settings) -> Latency:
    """Build every model in every runtime, then run them alternately."""
    with show_progress(len(settings.models) * len(settings.runtimes), settings.rounds) as report:
        return Latency(settings, tuple(time_candidates(_candidates(settings), settings, report)))


def _candidates(settings: Settings) -> Iterator[Candidate]:
    for model in settings.models:
        encoder = encoder_of(model)
        check_length(model, encoder, settings.length)
        for runtime in settings.runtimes:
            yield build_candidate(model, runtime, encoder, settings)


def check_length(model: str, encoder: Encoder, length: int) -> None:
    """Check that a model has enough positions."""
    if encoder.positions and length > encoder.positions:
        raise InputError(f"length must be <= {encoder.positions}, the positions of {model}")


def build_candidate(model: str, runtime: str, encoder: Encoder, settings: Settings) -> Candidate:
    """Build an encoder in one of the `RUNTIMES`."""
    if runtime in ("onnx", "int8"):
        return onnx_candidate(model, runtime, onnx_content(encoder, int8=runtime == "int8"), settings)
    if runtime in ("executorch", "executorch-int8"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pte"
            # A program can't be traced from tensors of the inference mode.
            with torch.inference_mode(mode=False):
                write_executorch(encoder, path, int8=runtime == "executorch-int8")
            return executorch_candidate(model, runtime, path, settings)
    ids, _, segments = (torch.from_numpy(array) for array in random_text(settings.length))
    # One text has no padding, so it needs no mask.
    module = torch.compile(encoder, dynamic=False) if runtime == "compiled" else encoder
    return Candidate(model, runtime, lambda: module(ids, None, segments), megabytes_of(encoder))


def onnx_content(encoder: Encoder, *, int8: bool = False) -> bytes:
    """The content of an ONNX file of an encoder's states, unverified, calibrated on random tokens."""
    graph, outputs = graph_of(encoder, STATES, int8=int8)
    measured = calibrate(graph, [Batch("any text", *random_text(_CALIBRATION))]).int8 if int8 else None
    return lower(graph, outputs, measured)


def onnx_candidate(model: str, runtime: str, content: bytes, settings: Settings) -> Candidate:
    """Load an ONNX file."""
    session, inputs = Session(content, settings.threads), random_text(settings.length)
    return Candidate(model, runtime, lambda: session(*inputs), len(content) / 1e6)


def executorch_candidate(model: str, runtime: str, path: Path, settings: Settings) -> Candidate:
    """Load a .pte file."""
    program, inputs = PteRuntime(path, STATES, threads=settings.threads), random_text(settings.length)
    return Candidate(model, runtime, lambda: program(*inputs), path.stat().st_size / 1e6)


def write_executorch(encoder: Encoder, path: Path, *, int8: bool) -> None:
    """Write the states of an encoder as a .pte file."""
    program = programs.exported_program(encoder, STATES, any_batch=False)
    if int8:
        program = programs.int8_program(program, encoder, Batch("any text", *random_text(8)))
    programs.write_pte(program, path, int8=int8)


def random_text(length: int) -> Inputs:
    """One text of random tokens, without padding."""
    ids = np.random.default_rng(0).integers(5, 1000, (1, length))
    return ids, np.ones_like(ids, dtype=np.bool_), np.zeros_like(ids)


def megabytes_of(encoder: Encoder) -> float:
    """The size of an encoder's weights."""
    return sum(weight.numel() * weight.element_size() for weight in encoder.parameters()) / 1e6


def encoder_of(name: str) -> Encoder:
    """Build the encoder of a preset, a bundled model or a model folder with random weights.

    A name may have changes, such as ``mobilebert:norm=layer``.
    """
    first, *changes = name.split(":")
    config = config_of(first)
    if changes:
        config = from_mapping(type(config), override(to_mapping(config), assignments(changes)))
    return build(config, seed=0).eval().requires_grad_(False)


def config_of(name: str) -> Config:
    """Return the config of a preset, a bundled model or a model folder."""
    if name in PRESETS:
        return PRESETS[name]
    if name not in bundled.NAMES and not Path(name).is_dir():
        raise unknown("model", name, [*PRESETS, *bundled.NAMES])
    return describe(find(name)).config


def time_candidates(
    candidates: Iterable[Candidate], settings: Settings, report: Callable[[int], object]
) -> list[Measurement]:
    """Build all candidates, then call them alternately; `report` gets the number of built candidates plus rounds."""
    threads, built, rounds = torch.get_num_threads(), [], []
    torch.set_num_threads(settings.threads or threads)
    try:
        with torch.inference_mode():
            for candidate in candidates:
                built.append(candidate)
                report(len(built))
            for candidate in built:
                for _ in range(_WARMUP_CALLS):
                    candidate.run()
            for number in range(settings.rounds):
                rounds.append([_time(candidate.run) for candidate in built])
                report(len(built) + number + 1)
    finally:
        torch.set_num_threads(threads)
    wall, cpu = np.moveaxis(np.array(rounds), -1, 0)
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
        for number, candidate in enumerate(built)
    ]


@contextmanager
def show_progress(models: int, rounds: int) -> Iterator[Callable[[int], None]]:
    """Show progress in models that are built plus rounds; yield a function that takes this sum."""
    with progress("latency", total=models + rounds, unit="models and rounds") as bar:
        yield lambda done: bar.advance(done - bar.done)


def _time(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu
