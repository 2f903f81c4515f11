"""The files of the latency benchmark, ours and those of transformers' models, and the text that they read."""

import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.bench import peer_files
from lightbert.bench.kept_files import folder_digests, kept, program_digest, source_digests, versions
from lightbert.bench.latency_models import encoder_of, peer_folder, transformers_encoder
from lightbert.deploy import int8_tables, joined_layers, program_rewrites, programs
from lightbert.deploy.export import export_content
from lightbert.deploy.verification import Batch
from lightbert.interop import peers
from lightbert.nn.encoder import Encoder
from lightbert.progress import progress
from lightbert.tasks.predict.exported import STATES

ONNX = ("onnx", "int8", "peer-onnx", "peer-int8")
EXECUTORCH = ("executorch", "executorch-int8")
SLOW = (*EXECUTORCH, "peer-onnx", "peer-int8")
"""The runtimes whose files take minutes to write."""

# Hashed when they are imported: code that changes while files are written is not the code that writes them.
_EXECUTORCH_CODE = source_digests(programs, int8_tables, joined_layers, program_rewrites)
_PEER_CODE = source_digests(peer_files, peers)

Inputs = tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any]]
"""Ids, mask and segments [1, T]."""


def text_of(length: int) -> Inputs:
    """One text of random tokens, without padding."""
    ids = np.random.default_rng(0).integers(5, 1000, (1, length))
    return ids, np.ones_like(ids, dtype=np.bool_), np.zeros_like(ids)


def onnx_file(model: str, runtime: str, encoder: Encoder, folder: Path) -> bytes:
    """The content of the ONNX file of a model for one of the runtimes `ONNX`; `folder` as in `slow_file`."""
    if runtime in SLOW:
        return slow_file(model, runtime, folder).read_bytes()
    return export_content(encoder, int8=runtime == "int8")


def slow_file(model: str, runtime: str, folder: Path) -> Path:
    """The file of a model for one of the runtimes `SLOW`, which is written to the folder if it is not there."""
    # Programs can't be traced from tensors of the inference mode.
    with torch.inference_mode(mode=False):
        if runtime.startswith("peer"):
            return _peer_file(model, folder, int8=runtime == "peer-int8")
        int8 = runtime == "executorch-int8"
        used = [versions("torch", "executorch", "torchao"), _EXECUTORCH_CODE]
        name = f"{model}-{runtime}.pte"
        return kept(folder, name, [_program_digest(model), int8, *used], lambda: _executorch(model, int8=int8))


def write_slow_files(pairs: Iterable[tuple[str, str]], folder: Path) -> None:
    """Write the files of pairs of a model and a runtime that take minutes and are not in the folder."""
    wanted = [pair for pair in dict.fromkeys(pairs) if pair[1] in SLOW]
    with progress("writing", total=len(wanted), unit="files") as bar, bar.redrawn():
        for model, runtime in wanted:
            bar.note(file=f"{model} {runtime}")
            slow_file(model, runtime, folder)
            bar.advance()


@lru_cache
def _program_digest(model: str) -> str:
    """Tracing takes seconds, and lowering minutes: only what a program contains decides whether its file can be used.

    The program itself can't be shared, because lowering changes it.
    """
    return program_digest(programs.exported_program(encoder_of(model), STATES, any_batch=False))


def _executorch(model: str, *, int8: bool) -> bytes:
    """The content of a .pte file of an encoder's states."""
    encoder = encoder_of(model)
    program = programs.exported_program(encoder, STATES, any_batch=False)
    if int8:
        program = programs.int8_program(program, encoder, Batch("any text", *text_of(8)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        programs.write_pte(program, path, int8=int8)
        return path.read_bytes()


def _peer_file(model: str, folder: Path, *, int8: bool) -> Path:
    used = [versions("torch", "transformers", "onnx", "onnxscript"), _PEER_CODE]
    depends_on = [_peer_digests(model), *used]
    path = kept(
        folder,
        f"{model}-peer-onnx.onnx",
        depends_on,
        lambda: peer_files.exported_peer(transformers_encoder(model), encoder_of(model).positions),
    )
    if not int8:
        return path
    depends_on += [versions("onnxruntime")]
    return kept(folder, f"{model}-peer-int8.onnx", depends_on, lambda: peer_files.quantized_peer(path.read_bytes()))


@lru_cache
def _peer_digests(model: str) -> dict[str, str]:
    """The config and the weights from which transformers builds its model."""
    with peer_folder(model) as folder:
        return folder_digests(folder)
