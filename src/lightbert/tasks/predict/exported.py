"""Exported models: the folder that `lightbert export` writes, used like a model, without torch."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError, unknown
from lightbert.files import check_name, read_text, read_tokenizer
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.predict.forward import Array, Arrays
from lightbert.tasks.predict.model_kind import encoder_of
from lightbert.tasks.predict.onnx_runtime import OnnxRuntime
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.program_runtime import ProgramRuntime, Pt2Runtime, PteRuntime
from lightbert.tasks.predict.vectors import Embedder, Floats, encode_texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILES = {"onnx": "model.onnx", "pt2": "model.pt2", "executorch": "model.pte"}
"""Target -> the name of its file."""
KEY = "lightbert"
"""The key of config.json whose object describes the exported model."""
STATES = "states"
"""The head of an encoder that was exported without one."""
FORMAT = 1

_POOLS = ("mean", "cls", "max")
_SUFFIXES = {Path(file).suffix for file in FILES.values()}


@dataclass(frozen=True)
class ExportedModel:
    """An exported model: `predict` and `stream` return predictions, `encode` returns vectors, as of the model itself.

    threads: the number of threads of an operator; 0 = one per core.
    """

    path: Path
    """The exported file."""
    head: str
    precision: str
    width: int
    positions: int
    reads_padding: bool
    head_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    task: Mapping[str, Any] = field(default_factory=dict)
    pooling: Mapping[str, Any] = field(default_factory=dict)
    """How a sentence encoder pools: pool, normalize and length."""
    threads: int = 0

    @property
    def heads(self) -> Mapping[str, Any]:
        """The exported head, none if the model was exported without one."""
        return self.head_settings

    @cached_property
    def tokenizer(self) -> "Tokenizer | None":
        """The tokenizer of the folder; None if there is none."""
        path = self.path.with_name("tokenizer.json")
        return read_tokenizer(path) if path.exists() else None

    def require_tokenizer(self) -> "Tokenizer":
        """Return the tokenizer; raise an InputError if there is none."""
        if self.tokenizer is None:
            raise InputError(f"the folder '{self.path.parent}' has no tokenizer.json; add the model's")
        return self.tokenizer

    @cached_property
    def runtime(self) -> "OnnxRuntime | ProgramRuntime":
        """What runs the file."""
        return runtime_of(self.path, self.head, reads_padding=self.reads_padding, threads=self.threads)

    def predict(self, texts: Any, *, batch: int = 0, length: int = 0) -> Any:
        """Predict one text or a list of texts; see `Predictor.predict` for the accepted types."""
        return Predictor(self, batch=batch, length=length, runtime=self.runtime).predict(texts)

    def stream(self, texts: Iterable[Any], *, batch: int = 0, length: int = 0, chunk: int = 0) -> Iterator[Prediction]:
        """Predict any number of texts lazily, in bounded memory."""
        return Predictor(self, batch=batch, length=length, chunk=chunk, runtime=self.runtime).stream(texts)

    def encode(
        self,
        texts: Any,
        *,
        pool: str | None = None,
        normalize: bool | None = None,
        batch: int = 0,
        length: int = 0,
    ) -> Floats:
        """Encode texts as vectors: float32 [N, D], or [D] for one text; see `TextModel.encode`."""
        return encode_texts(self.embedder(pool=pool, normalize=normalize, batch=batch, length=length), texts)

    def embedder(
        self, *, pool: str | None = None, normalize: bool | None = None, batch: int = 0, length: int = 0
    ) -> Embedder:
        """An embedder with the pooling of a sentence encoder by default, otherwise with the unscaled mean."""
        if self.head != STATES:
            raise InputError(
                f"'{self.path}' was exported with the {self.head} head and has no hidden states; export the model "
                f"again with --head {STATES}"
            )
        pool = self.pooling.get("pool", "mean") if pool is None else pool
        if pool not in _POOLS:
            raise unknown("pool", pool, _POOLS)
        return Embedder(
            _PooledStates(self.runtime, pool, self.width),
            encoder_of(self, length or self.pooling.get("length", 0)),
            normalize=self.pooling.get("normalize", False) if normalize is None else normalize,
            batch=batch,
        )


class _PooledStates:
    """Pools the hidden states of each text, as `lightbert.nn.inference.TextVector` does."""

    head = "vector"

    def __init__(self, runtime: "OnnxRuntime | ProgramRuntime", pool: str, width: int) -> None:
        self._runtime, self._pool, self.width = runtime, pool, width
        self.reads_padding, self.batch_tokens, self.chunk = runtime.reads_padding, runtime.batch_tokens, runtime.chunk

    def running(self) -> AbstractContextManager[object]:
        return self._runtime.running()

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        (states,) = self._runtime(ids, mask, segments)  # [B, T, D]
        vectors = self._pooled(states, np.ones_like(ids, dtype=np.bool_) if mask is None else mask)
        return lambda: (vectors,)

    def _pooled(self, states: Floats, mask: NDArray[np.bool_]) -> Floats:
        if self._pool == "cls":
            return states[:, 0]
        real = mask[:, :, None]
        if self._pool == "max":
            largest: Floats = np.where(real, states, np.float32("-inf")).max(axis=1)
            return largest
        mean: Floats = np.where(real, states, np.float32(0)).sum(axis=1) / real.sum(axis=1).clip(min=1)
        return mean.astype(np.float32)


def runtime_of(path: Path, head: str, *, reads_padding: bool, threads: int = 0) -> "OnnxRuntime | ProgramRuntime":
    """Load an exported file; `threads` is for ONNX Runtime."""
    if path.suffix == ".pt2":
        return Pt2Runtime(path, head, reads_padding=reads_padding)
    if path.suffix == ".pte":
        return PteRuntime(path, head)
    return OnnxRuntime(path, head, reads_padding=reads_padding, threads=threads)


def find_exported(name: str | Path) -> Path | None:
    """Return the exported file that a name means, a file or the folder with it; None if it means something else."""
    check_name(name)
    path = Path(name)
    if path.suffix in _SUFFIXES:
        if not path.is_file():
            raise InputError(f"'{path}' not found; give a file that `lightbert export` wrote, or its folder")
        return path
    if (path / "model.safetensors").exists():
        return None
    return next((path / file for file in FILES.values() if (path / file).is_file()), None)


def read_exported(path: Path, *, threads: int = 0) -> ExportedModel:
    """Read the description of an exported file from the config.json next to it."""
    config = path.with_name("config.json")
    try:
        content = json.loads(read_text(config))
        ours = content[KEY]
        if ours["format"] != FORMAT:
            raise InputError(f"the format of '{config}' must be {FORMAT}, got {ours['format']!r}; update lightbert")
        return ExportedModel(
            path=path,
            head=ours["head"],
            precision=ours["precision"],
            width=ours["width"],
            positions=ours["positions"],
            reads_padding=ours["reads_padding"],
            head_settings=ours["heads"],
            labels=tuple(ours["labels"]),
            task=ours["task"],
            pooling=ours["pooling"],
            threads=threads,
        )
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"'{path}' has no config.json next to it; use the whole folder of the export") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"'{config}' doesn't describe an export of lightbert ({type(error).__name__}: {error}); "
            "export the model with `lightbert export`"
        ) from None
