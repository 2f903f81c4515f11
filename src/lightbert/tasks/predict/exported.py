"""Exported models: the folder that `lightbert export` writes, used like a model, a `model.onnx` without torch."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError, required, unknown
from lightbert.files import check_name, read_text, read_tokenizer
from lightbert.nn.pooling_settings import POOLS, PROJECTION, Pool, Pooling
from lightbert.tasks.predict.runtime import CPU_CHUNK, CPU_TOKENS, PER_TOKEN, Array, Arrays
from lightbert.tasks.predict.text_methods import TextMethods

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from lightbert.tasks.predict.text_model import TextModel


_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class Session:
    """An ONNX Runtime session with the inputs of our graphs, on a CPU.

    source: the path of a file, or its content.
    threads: the number of threads of an operator; 0 = one per core.
    profile: the start of the path to which the time of every operator is written; "" = none.
    """

    def __init__(self, source: str | bytes, threads: int = 0, *, profile: str = "") -> None:
        with required("exported models require onnxruntime", "lightbert[export]"):
            import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        # Threads wait actively within a run, which is about 5 % faster; afterwards they would slow down other sessions.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # Errors only: the warnings are about the runtime's own optimizations.
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    @property
    def inputs(self) -> set[str]:
        """The names of the inputs."""
        return {entry.name for entry in self._session.get_inputs()}

    def end_profile(self) -> str:
        """Write the profile and return its path."""
        path: str = self._session.end_profiling()
        return path

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Ids, mask and segments [B, T] to the outputs."""
        real = np.ones_like(ids) if mask is None else mask.astype(np.int64)
        return tuple(self._session.run(None, {"input_ids": ids, "attention_mask": real, "token_type_ids": segments}))


class _FileRuntime(ABC):
    """Runs an exported file on a CPU: ids, mask and segments [B, T] to the outputs of the head."""

    batch_tokens, chunk = CPU_TOKENS, CPU_CHUNK

    def __init__(self, head: str, *, reads_padding: bool) -> None:
        self.head, self.reads_padding = head, reads_padding

    def running(self) -> AbstractContextManager[object]:
        """No preparation is needed."""
        return nullcontext()

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        """Compute a batch at once."""
        results = self(ids, mask, segments)
        return lambda: results

    @abstractmethod
    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Compute a batch."""


class OnnxRuntime(_FileRuntime):
    """Runs a model.onnx that `lightbert export` wrote."""

    def __init__(self, path: Path, head: str, *, reads_padding: bool = False, threads: int = 0) -> None:
        super().__init__(head, reads_padding=reads_padding)
        try:
            self._session = Session(str(path), threads)
        except InputError:
            raise
        # The classes of ONNX Runtime's errors have no common base class.
        except Exception as error:
            raise InputError(f"ONNX Runtime can't read '{path}' ({error}); export or copy it again") from error
        if self._session.inputs != _INPUTS:
            raise InputError(
                f"the inputs of '{path}' must be {', '.join(sorted(_INPUTS))}, got "
                f"{', '.join(sorted(self._session.inputs))}; export the model with `lightbert export`"
            )

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Compute a batch in the session."""
        return self._session(ids, mask, segments)


SHORTEST = 3
"""The length of the shortest rows; shorter ones are padded."""


class ProgramRuntime(_FileRuntime):
    """Runs a program of torch.export: a subclass loads it."""

    def __init__(self, head: str, run: Callable[..., Any], *, reads_padding: bool) -> None:
        super().__init__(head, reads_padding=reads_padding)
        self._run = run

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Ids, mask and segments [B, T] to the outputs of the head."""
        mask, tokens = np.ones_like(ids, dtype=np.bool_) if mask is None else mask, ids.shape[1]
        missing = max(0, SHORTEST - tokens)
        outputs = self._outputs(*(np.pad(array, ((0, 0), (0, missing))) for array in (ids, mask, segments)))
        return tuple(array[:, :tokens] for array in outputs) if self.head in PER_TOKEN else outputs

    def _outputs(self, *inputs: NDArray[Any]) -> Arrays:
        import torch

        with torch.inference_mode():
            return tuple(output.numpy() for output in self._run(*(torch.from_numpy(array) for array in inputs)))


class Pt2Runtime(ProgramRuntime):
    """Runs a model.pt2 in PyTorch."""

    def __init__(self, path: Path, head: str, *, reads_padding: bool = False) -> None:
        from lightbert.tasks.predict.pt2_archive import Pt2Program

        super().__init__(head, Pt2Program(path), reads_padding=reads_padding)


class PteRuntime(ProgramRuntime):
    """Runs a model.pte in ExecuTorch, row by row.

    threads: the number of threads of all programs of the process; 0 = ExecuTorch's default.
    """

    def __init__(self, path: Path, head: str, *, threads: int = 0) -> None:
        with required(f"'{path}' requires executorch", "lightbert[executorch]"):
            from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
            from executorch.runtime import Runtime
        if threads:
            _unsafe_reset_threadpool(threads)
        try:
            # The method reads the program's memory.
            self._program = Runtime.get().load_program(path)
            method = self._program.load_method("forward")
        # The runtime raises nothing more specific.
        except Exception as error:
            raise InputError(f"ExecuTorch can't read '{path}' ({error}); export or copy it again") from error
        # Rows run one by one, so there is no reason to pad them to the length of others.
        super().__init__(head, lambda *inputs: method.execute(list(inputs)), reads_padding=True)

    def _outputs(self, *inputs: NDArray[Any]) -> Arrays:
        split = (np.split(array, len(array)) for array in inputs)
        rows = [super(PteRuntime, self)._outputs(*row) for row in zip(*split, strict=True)]
        return tuple(np.concatenate(outputs) for outputs in zip(*rows, strict=True))


Runtime = OnnxRuntime | ProgramRuntime
RUNTIMES: Mapping[str, Callable[[Path, str, bool, int], Runtime]] = {
    ".onnx": lambda path, head, padding, threads: OnnxRuntime(path, head, reads_padding=padding, threads=threads),
    ".pt2": lambda path, head, padding, _: Pt2Runtime(path, head, reads_padding=padding),
    ".pte": lambda path, head, *_: PteRuntime(path, head),
}
"""Suffix of an exported file -> what loads it, from its path, its head, and whether the model reads padding."""
KEY = "lightbert"
"""The key of config.json whose object describes the exported model."""
STATES = "states"
"""The head of an encoder that was exported without one."""
FORMAT = 1
_DESCRIPTION = ("head", "precision", "width", "positions", "reads_padding", "task")


@dataclass(frozen=True)
class ExportedModel(TextMethods):
    """An exported model, with the methods of the model itself.

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
    pooling: Pooling | None = None
    normalized: bool = False
    """Whether the file scales its vectors to length 1."""
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
    def runtime(self) -> Runtime:
        """What runs the file."""
        return runtime_of(self.path, self.head, reads_padding=self.reads_padding, threads=self.threads)

    def vector_runtime(self, pool: Pool | None, normalize: bool | None) -> "_PooledStates":
        """Computes vectors by the pooling of the model, or the pooled states themselves."""
        default = self.pooling or Pooling()
        whole = pool is None and self.pooling is not None
        required_head = PROJECTION if whole and default.projection else STATES
        if self.head != required_head and not (whole and self.head == PROJECTION):
            raise InputError(
                f"'{self.path}' was exported with the {self.head} head and has no "
                f"{'hidden states' if required_head == STATES else 'projected vectors'}; export the model again with "
                f"--head {required_head}"
            )
        if self.normalized and normalize is False:
            raise InputError(
                f"normalize must be true with '{self.path}', which computes vectors of length 1, got false; export the "
                f"model again with --head {STATES}"
            )
        pool = default.pool if pool is None else pool
        if pool not in POOLS:
            raise unknown("pool", pool, POOLS)
        width = self.head_settings[PROJECTION]["size"] if PROJECTION in self.head_settings else self.width
        return _PooledStates(self.runtime, "" if self.head == PROJECTION else pool, width)


class _PooledStates(_FileRuntime):
    """Pools the hidden states of each text, as `lightbert.nn.inference.TextVector` does.

    pool: "" = the outputs of the runtime are vectors already.
    """

    def __init__(self, runtime: Runtime, pool: str, width: int) -> None:
        super().__init__("vector", reads_padding=runtime.reads_padding)
        self._runtime, self._pool, self.width = runtime, pool, width

    def __call__(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Arrays:
        """Compute the states [B, T, D] and pool them."""
        (states,) = self._runtime(ids, mask, segments)
        real = (np.ones_like(ids, dtype=np.bool_) if mask is None else mask)[:, :, None]
        match self._pool:
            case "cls":
                states = states[:, 0]
            case "max":
                states = np.where(real, states, np.float32("-inf")).max(axis=1)
            case "mean":
                sums = np.where(real, states, np.float32(0)).sum(axis=1)
                states = (sums / real.sum(axis=1).clip(min=1)).astype(np.float32)
        return (states,)


def runtime_of(path: Path, head: str, *, reads_padding: bool, threads: int = 0) -> Runtime:
    """Load an exported file; `threads` is for ONNX Runtime."""
    return RUNTIMES[path.suffix](path, head, reads_padding, threads)


def find_exported(name: str | Path) -> Path | None:
    """Return the exported file that a name means, a file or the folder with it; None if it means something else."""
    check_name(name)
    path = Path(name)
    if path.suffix in RUNTIMES:
        if not path.is_file():
            raise InputError(f"'{path}' not found; give a file that `lightbert export` wrote, or its folder")
        return path
    if (path / "model.safetensors").exists():
        return None
    return next((file for suffix in RUNTIMES if (file := path / f"model{suffix}").is_file()), None)


def read_exported(path: Path, *, threads: int = 0) -> ExportedModel:
    """Read the description of an exported file from the config.json next to it."""
    config = path.with_name("config.json")
    try:
        content = json.loads(read_text(config))
        ours = content[KEY]
        pooling = ours["pooling"]
        if ours["format"] != FORMAT:
            raise InputError(f"the format of '{config}' must be {FORMAT}, got {ours['format']!r}; update lightbert")
        return ExportedModel(
            path=path,
            head_settings=ours["heads"],
            labels=tuple(ours["labels"]),
            # JSON turns tuples into lists.
            pooling=Pooling(**pooling | {"sizes": tuple(pooling.get("sizes", ()))}) if pooling else None,
            threads=threads,
            normalized=ours.get("normalized", False),
            **{name: ours[name] for name in _DESCRIPTION},
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


def load(name: str | Path) -> "TextModel | ExportedModel":
    """Load a model, ready to use.

    name: a model folder, ours or Hugging Face's; the name of a bundled model; ``org/name`` or ``org/name@revision`` for
    the Hugging Face Hub; the path prefix of a TensorFlow 1 checkpoint (docs/models.md); or a file that `lightbert
    export` wrote, or its folder (docs/deploy.md); a ``model.onnx`` is loaded without torch.
    """
    exported = find_exported(name)
    if exported is not None:
        return read_exported(exported)
    from lightbert.tasks.predict.text_model import load_text_model

    return load_text_model(name)


def load_on(name: str | Path, device: str) -> "TextModel | ExportedModel":
    """Load a model and move it to a device: auto, cpu or cuda. An exported model runs on the CPU."""
    model = load(name)
    if isinstance(model, ExportedModel):
        if device not in ("auto", "cpu"):
            raise InputError(f"device must be auto or cpu with an exported model, got {device!r}")
        return model
    from lightbert.train.distributed import resolve_device

    return model.to(resolve_device(device))
