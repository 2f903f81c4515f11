"""`lightbert bench latency` with transformers' models, the blocks of ConvBERT Table 9, and files that are kept.

python -m benchmarks.latency --models convbert-small --runtimes torch,onnx,peer,peer-onnx --threads 1

With --threads N, everything runs in a process that is started with that number of threads, unless this one was.
"""

import argparse
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import torch

from benchmarks import latency_files
from benchmarks.pages import run_main
from lightbert.commands.report import show
from lightbert.config import from_mapping, to_mapping
from lightbert.deploy import latency
from lightbert.deploy.latency import Candidate, Latency, Measurement
from lightbert.errors import InputError
from lightbert.nn.encoder import Encoder
from lightbert.processes import THREADS, ProcessFailedError, Report, call, has_threads

RUNTIMES = latency.RUNTIMES | {
    "peer": "transformers, eager",
    "peer-onnx": "transformers, exported by torch.onnx, float32",
    "peer-int8": "transformers, exported, and quantized by ONNX Runtime",
}
"""Name -> description."""


@dataclass(frozen=True)
class Settings(latency.Settings):
    """What is measured; also models of transformers and selected pairs."""

    known_runtimes: ClassVar[Mapping[str, str]] = RUNTIMES

    pairs: tuple[tuple[str, str], ...] = ()
    """Pairs of a model and a runtime that are measured; all if empty."""


def measure(settings: Settings, keep: Path | None = None) -> Latency:
    """Build every model in every runtime, then run them alternately.

    This happens in another process if this one was started with another number of threads.

    keep: the folder for files that take minutes to write; those that it has already are used.
    """
    with latency.show_progress(len(_pairs(settings)), settings.rounds) as report:
        if has_threads(settings.threads):
            rows = _measure(settings, keep, report)
        else:
            arguments = [to_mapping(settings), str(keep) if keep else ""]
            content = call_with_threads("benchmarks.latency:measure_as_json", arguments, settings.threads, report)
            rows = [Measurement(**row) for row in json.loads(content)]
    return Latency(settings, tuple(rows))


def call_with_threads(function: str, arguments: Sequence[Any], threads: int, report: Report) -> str:
    """Return the string that `function`, "module:name", returns in a process that is started with so many threads."""
    try:
        return call(function, arguments, report=report, environment={THREADS: str(threads)})
    except ProcessFailedError as error:
        if error.code < 0:
            name = signal.Signals(-error.code).name
            raise InputError(
                f"the measuring process was ended by {name}; if memory ran out, choose smaller models"
            ) from error
        # The command line recognises lack of memory by the text.
        raise RuntimeError(f"the measuring process failed:\n{error.printed}") from error


def measure_as_json(report: Report, settings: dict[str, Any], keep: str) -> str:
    """Measure in this process, and return the rows as JSON."""
    rows = _measure(from_mapping(Settings, settings), Path(keep) if keep else None, report)
    return json.dumps([asdict(row) for row in rows])


def relative_time(row: Measurement, threads: int) -> float:
    """The time relative to the reference; with one thread the CPU time, which other processes disturb less."""
    return row.cpu_ratio if threads == 1 else row.ratio


def _measure(settings: Settings, keep: Path | None, report: Report) -> list[Measurement]:
    with latency_files.folder_of_files(keep) as folder:
        return latency.time_candidates(_candidates(settings, folder), settings, report)


def _pairs(settings: Settings) -> tuple[tuple[str, str], ...]:
    return settings.pairs or tuple(product(settings.models, settings.runtimes))


def _candidates(settings: Settings, folder: Path) -> Iterator[Candidate]:
    for model, pairs in groupby(_pairs(settings), key=itemgetter(0)):
        encoder = latency_files.encoder_of(model)
        latency.check_length(model, encoder, settings.length)
        for _, runtime in pairs:
            if runtime == "peer":
                yield _peer_candidate(model, encoder, settings.length)
            elif runtime in latency_files.EXECUTORCH:
                path = latency_files.slow_file(model, runtime, folder)
                yield latency.executorch_candidate(model, runtime, path, settings)
            elif runtime in latency_files.SLOW:
                content = latency_files.slow_file(model, runtime, folder).read_bytes()
                yield latency.onnx_candidate(model, runtime, content, settings)
            else:
                yield latency.build_candidate(model, runtime, encoder, settings)


def _peer_candidate(model: str, encoder: Encoder, length: int) -> Candidate:
    peer, tensors = (
        latency_files.transformers_encoder(model),
        [torch.from_numpy(array) for array in latency.random_text(length)],
    )
    return Candidate(model, "peer", lambda: peer(*tensors), latency.megabytes_of(encoder))


def main(arguments: list[str] | None = None) -> None:
    """Print a table of latencies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(Settings.models), help=f"also {', '.join(latency_files.BLOCKS)}")
    parser.add_argument("--runtimes", default=",".join(Settings.runtimes), help=", ".join(RUNTIMES))
    parser.add_argument("--length", type=int, default=Settings.length)
    parser.add_argument("--threads", type=int, default=Settings.threads, help="0: one per core")
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--keep", type=Path, help="folder for files that take minutes to write, used if they fit")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    models, runtimes = (tuple(names.split(",")) for names in (options.models, options.runtimes))
    settings = Settings(models, runtimes, options.length, options.threads, options.rounds)
    show(measure(settings, options.keep), json=options.json)


if __name__ == "__main__":
    run_main(main)
