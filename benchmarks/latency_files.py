"""The models and files of the latency benchmark, ours and those of transformers.

Files that take minutes to write are kept under names with a hash of what they depend on, so that none is outdated.
"""

import hashlib
import importlib
import json
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim

import lightbert
from benchmarks.pages import versions
from benchmarks.peers import plain_encoder
from lightbert.deploy import latency
from lightbert.deploy.latency import onnx_content, write_executorch
from lightbert.errors import InputError, required
from lightbert.files import make_folder, sha256, write_atomic
from lightbert.interop import huggingface
from lightbert.models import build
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.nn.blocks import PostNormBlock
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.init import initialize
from lightbert.nn.norms import layer_norm
from lightbert.progress import progress

ONNX = ("onnx", "int8", "peer-onnx", "peer-int8")
EXECUTORCH = ("executorch", "executorch-int8")
SLOW = (*EXECUTORCH, "peer-onnx", "peer-int8")
"""The runtimes whose files take minutes to write."""


BLOCKS = ("attention-block", "mixed-block")
"""Blocks without feed-forwards at the size of BERT-base and ConvBERT-base (ConvBERT Table 9)."""

_BLOCKS_PER_MODEL = 4


def onnx_file(model: str, runtime: str, encoder: Encoder, folder: Path) -> bytes:
    """The content of the ONNX file of a model for one of the runtimes `ONNX`; `folder` as in `slow_file`."""
    if runtime in SLOW:
        return slow_file(model, runtime, folder).read_bytes()
    return onnx_content(encoder, int8=runtime == "int8")


def slow_file(model: str, runtime: str, folder: Path) -> Path:
    """The file of a model for one of the runtimes `SLOW`, which is written to the folder if it is not there."""
    # Programs can't be traced from tensors of the inference mode.
    with torch.inference_mode(mode=False):
        suffix = "pte" if runtime in EXECUTORCH else "onnx"
        # Models can be folders of the user; all others have the same random weights in every run.
        files = sorted(path for path in Path(model.partition(":")[0]).glob("*") if path.is_file())
        weights = [sha256(path) for path in files]
        return kept(folder, f"{model}-{runtime}.{suffix}", weights, lambda: _content(model, runtime, folder))


def _content(model: str, runtime: str, folder: Path) -> bytes:
    if runtime in EXECUTORCH:
        return _executorch(model, int8=runtime == "executorch-int8")
    if runtime == "peer-onnx":
        return exported_peer(transformers_encoder(model), encoder_of(model).positions)
    return quantized_peer(slow_file(model, "peer-onnx", folder).read_bytes())


def write_slow_files(pairs: Iterable[tuple[str, str]], folder: Path) -> None:
    """Write the files of pairs of a model and a runtime that take minutes and are not in the folder."""
    wanted = [pair for pair in dict.fromkeys(pairs) if pair[1] in SLOW]
    with progress("writing", total=len(wanted), unit="files") as bar, bar.redrawn():
        for model, runtime in wanted:
            bar.note(file=f"{model} {runtime}")
            slow_file(model, runtime, folder)
            bar.advance()


def _executorch(model: str, *, int8: bool) -> bytes:
    """The content of a .pte file of an encoder's states."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        write_executorch(encoder_of(model), path, int8=int8)
        return path.read_bytes()


@contextmanager
def folder_of_files(keep: Path | None) -> Iterator[Path]:
    """Yield the folder in which files are kept, or a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        make_folder(keep)
        yield keep


def kept(folder: Path, name: str, depends_on: list[str], content: Callable[[], bytes]) -> Path:
    """Return the path of a file, after writing it if it is not there.

    Its name has a hash of `depends_on`, of the source and of the versions of packages: an outdated file is never used.
    """
    digest = hashlib.sha256(json.dumps([_environment(), *depends_on]).encode()).hexdigest()[:16]
    stem, _, suffix = re.sub(r"[^\w.-]", "-", name).rpartition(".")
    path = folder / f"{stem}-{digest}.{suffix}"
    if not path.exists():
        write_atomic(path, content())
    return path


@cache
def _environment() -> list[str]:
    """Hashes of the source, and versions; source that changes while files are written doesn't count."""
    package = Path(str(lightbert.__file__)).parent
    sources = [Path(__file__), *sorted(path for path in package.rglob("*") if path.suffix in (".py", ".json"))]
    used = versions("torch", "executorch", "torchao", "transformers", "onnx", "onnxscript", "onnxruntime")
    return [*used.values(), *(sha256(path) for path in sources)]


def exported_peer(model: nn.Module, positions: int) -> bytes:
    """Export a model of transformers by torch.onnx, with dynamic batch size and length."""
    example = torch.ones(2, 8, dtype=torch.int64)
    shape = {0: Dim("batch", min=1, max=64), 1: Dim("tokens", min=3, max=positions or 512)}
    names = ("input_ids", "attention_mask", "token_type_ids")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "peer.onnx"
        with required("the runtime peer-onnx requires onnxscript", "onnxscript"):
            importlib.import_module("onnxscript")
        torch.onnx.export(
            model,
            (example, example, example),
            path,
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=names,
            dynamic_shapes=(shape, shape, shape),
        )
        return path.read_bytes()


def quantized_peer(content: bytes) -> bytes:
    """Quantize the linear layers of a file by ONNX Runtime's quantize_dynamic, per channel."""
    from onnxruntime.quantization import quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "peer.onnx", Path(folder) / "int8.onnx"
        source.write_bytes(content)
        quantize_dynamic(source, target, per_channel=True)
        return target.read_bytes()


def encoder_of(name: str) -> Encoder:
    """Build a model of `lightbert bench latency` or a block, with random weights."""
    return _blocks(mixed=name == "mixed-block") if name in BLOCKS else latency.encoder_of(name)


def transformers_encoder(name: str) -> nn.Module:
    """Build the same model in transformers, with the same weights; its inputs are ids, mask and segments."""
    with peer_folder(name) as folder:
        return plain_encoder(folder)


@contextmanager
def peer_folder(name: str) -> Iterator[Path]:
    """Yield a temporary folder with the same model in the Hugging Face layout."""
    if name in BLOCKS:
        raise InputError(f"'{name}' is a block, which transformers can't run alone; leave out the runtimes of peers")
    first, *changes = name.split(":")
    if changes:
        raise InputError(f"runtimes of peers require a model without changes, got '{name}'")
    with tempfile.TemporaryDirectory() as folder:
        huggingface.write(build(latency.config_of(first), seed=0), Path(folder) / "peer")
        yield Path(folder) / "peer"


def _blocks(*, mixed: bool) -> Encoder:
    width, norm = 768, layer_norm(1e-12)
    blocks = [
        PostNormBlock(
            width,
            mixer=(ConvBert() if mixed else Bert()).mixer(),
            feedforward=nn.Sequential(),
            norm=norm,
        )
        for _ in range(_BLOCKS_PER_MODEL)
    ]
    # A small vocabulary, because only the blocks are of interest.
    embeddings = Embeddings(1000, width, width, positions=512, segments=2, norm=norm)
    encoder = Encoder(embeddings, blocks, width=width, positions=512)
    initialize(encoder, seed=0)
    return encoder.eval().requires_grad_(False)
