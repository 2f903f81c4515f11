"""The files of the latency benchmark, ours and those of transformers' models, and the text that they read."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.bench.latency_models import transformers_encoder
from lightbert.bench.peer_files import exported_peer, quantized_peer
from lightbert.deploy.export import export_content
from lightbert.deploy.programs import exported_program, int8_program, write_pte
from lightbert.deploy.verification import Batch
from lightbert.nn.encoder import Encoder
from lightbert.tasks.predict.exported import STATES

ONNX = ("onnx", "int8", "peer-onnx", "peer-int8")
EXECUTORCH = ("executorch", "executorch-int8")

Inputs = tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any]]
"""Ids, mask and segments [1, T]."""


def text_of(length: int) -> Inputs:
    """One text of random tokens, without padding."""
    ids = np.random.default_rng(0).integers(5, 1000, (1, length))
    return ids, np.ones_like(ids, dtype=np.bool_), np.zeros_like(ids)


def onnx_file(model: str, runtime: str, encoder: Encoder) -> bytes:
    """The content of the ONNX file of a model for one of the runtimes `ONNX`."""
    if runtime in ("onnx", "int8"):
        return export_content(encoder, int8=runtime == "int8")
    content = _exported_peer(model, encoder.positions)
    return quantized_peer(content) if runtime == "peer-int8" else content


@lru_cache(maxsize=1)
def _exported_peer(model: str, positions: int) -> bytes:
    """The file of transformers' model, kept because torch.onnx takes a minute and more."""
    return exported_peer(transformers_encoder(model), positions)


def write_executorch(encoder: Encoder, path: Path, *, int8: bool) -> None:
    """Write a .pte file of an encoder's states."""
    program = exported_program(encoder, STATES, any_batch=False)
    if int8:
        program = int8_program(program, encoder, Batch("any text", *text_of(8)))
    write_pte(program, path, int8=int8)
