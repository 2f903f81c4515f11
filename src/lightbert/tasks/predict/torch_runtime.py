"""Inference with torch, on the device of the model; on a GPU with CUDA graphs."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.data.features import PackedRows
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.models.sentence_files import check_pooling
from lightbert.nn.fused import has_hooks
from lightbert.nn.inference import Inference, LayerMaps, LayerVectors, TextVector
from lightbert.nn.pooling import PackedTexts
from lightbert.nn.pooling_settings import Pool, Pooling
from lightbert.tasks.predict.runtime import CPU_CHUNK, CPU_TOKENS, PER_TOKEN, Array, Arrays
from lightbert.train.cuda_graph import capture, run_on_side_stream
from lightbert.train.distributed import resolve_device

Tensors = tuple[Tensor, ...]

WARMUP_CALLS = 2
"""Eager calls per shape before the capture, in which kernels are compiled and libraries initialized."""


class _Capture(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


class CapturedForward:
    """Calls a function of tensors; on a GPU, from the third call with the same shapes on, by replaying a CUDA graph.

    Launching the kernels of a small model takes longer than running them; a replay is a single launch. The graph reads
    the weights where they were at its capture: they may change in place, but must not move.
    function: takes and returns tensors on the device, without host synchronization.
    """

    def __init__(self, function: Callable[..., Tensors], device: torch.device) -> None:
        if device.type != "cuda":
            raise InputError(f"a forward pass can be captured on a GPU only, got the device '{device}'")
        self._function, self._device = function, device
        self._captures: dict[tuple[torch.Size, ...], _Capture] = {}
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        # Only the outputs outlive a replay, and they are copied: captures can share one memory pool.
        self._pool: Any = torch.cuda.graph_pool_handle()

    def __call__(self, *inputs: Tensor) -> Tensors:
        """Compute the outputs of inputs on the host."""
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self._captures:
            placed = tuple(tensor.to(self._device, non_blocking=True) for tensor in inputs)
            self._calls[shapes] += 1
            if self._calls[shapes] <= WARMUP_CALLS:
                return run_on_side_stream(lambda: self._function(*placed), self._device)
            graph, outputs = capture(lambda: self._function(*placed), self._pool)
            self._captures[shapes] = _Capture(graph, placed, outputs)
        captured = self._captures[shapes]
        for static, tensor in zip(captured.inputs, inputs, strict=True):
            static.copy_(tensor, non_blocking=True)
        captured.graph.replay()
        # The next replay overwrites the outputs.
        return tuple(output.clone() for output in captured.outputs)


_CUDA_TOKENS = (32768, 65536)
_CUDA_CHUNK = 16384

Rows = Literal["grouped", "packed", "captured"]
"""Padded texts of similar length; texts packed into rows of few shapes; packed, and computed by a CUDA graph."""

DEFAULT_ROWS: dict[str, Rows] = {"cuda": "captured"}
"""By the type of the device; the others group texts."""


class TorchRuntime:
    """Runs a module of `lightbert.nn.inference` without gradients and dropout, on a GPU in bfloat16.

    rows: how texts are put into rows, for tests and benchmarks. Packed rows need few shapes of batches for all texts:
    a GPU replays a CUDA graph for each, the default there. Grouped rows are shorter, so that attention costs less on a
    CPU. Models that read the padding can't be packed. Nothing is captured if a layer has hooks, which a replay
    wouldn't call.
    """

    def __init__(self, inference: Inference | TextVector | LayerVectors | LayerMaps, rows: Rows | None = None) -> None:
        self.inference = inference
        self.head, self.reads_padding, self.device = inference.head, inference.reads_padding, inference.device
        cuda = self.device.type == "cuda"
        self.batch_tokens, self.chunk = (_CUDA_TOKENS, _CUDA_CHUNK) if cuda else (CPU_TOKENS, CPU_CHUNK)
        self.positions = inference.encoder.positions
        self.width = inference.width if isinstance(inference, TextVector) else 0
        """The number of values in a vector; 0 = the outputs are no vectors."""
        packable = not self.reads_padding and not isinstance(inference, LayerMaps)
        if rows not in (None, "grouped") and not packable:
            raise InputError(f"rows must be 'grouped' for attention maps and padding = 'released', got {rows!r}")
        self.rows = rows or (DEFAULT_ROWS.get(self.device.type, "grouped") if packable else "grouped")
        if self.rows == "captured" and any(has_hooks(layer) for layer in inference.modules()):
            self.rows = "packed"
        self.packs = self.rows != "grouped"
        self._captured = CapturedForward(self._packed, self.device) if self.rows == "captured" else None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Evaluation mode, no gradients, and autocast on a GPU."""
        kind = self.device.type
        # A CUDA graph must not read weights from the cache of autocast, which is cleared at the end of this context.
        cached = self._captured is None
        autocast = torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda", cache_enabled=cached)
        with _eval_mode(self.inference.encoder), torch.inference_mode(), autocast:
            yield

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        """Start to compute a batch; the returned function copies the outputs to the host."""
        inputs = (
            None if array is None else torch.from_numpy(array).to(self.device, non_blocking=True)
            for array in (ids, mask, segments)
        )
        return _to_host(self.inference(*inputs))

    def submit_packed(self, rows: PackedRows) -> Callable[[], Arrays]:
        """Start to compute packed rows; the returned function copies the outputs of real texts to the host."""
        arrays = (rows.ids, rows.texts, rows.segments, rows.starts, rows.lengths)
        tensors = [torch.from_numpy(array) for array in arrays]
        if self._captured is not None:
            results = self._captured(*tensors)
        else:
            results = self._packed(*(tensor.to(self.device, non_blocking=True) for tensor in tensors))
        if self.head not in PER_TOKEN:
            # The room for texts is larger than their number.
            results = tuple(result[: np.count_nonzero(rows.lengths)] for result in results)
        return _to_host(results)

    def _packed(self, ids: Tensor, texts: Tensor, segments: Tensor, starts: Tensor, lengths: Tensor) -> Tensors:
        assert not isinstance(self.inference, LayerMaps)
        return tuple(self.inference.packed(ids, texts, segments, PackedTexts(starts, lengths)))


def _to_host(results: Tensors) -> Callable[[], Arrays]:
    return lambda: tuple((result.float() if result.is_floating_point() else result).cpu().numpy() for result in results)


def place(model: object, device: str | None) -> Model:
    """Move a model to a device: auto, cpu or cuda; None = leave it where it is."""
    assert isinstance(model, Model)
    return model if device is None else model.to(resolve_device(device))


def vector_runtime(model: Model, pool: Pool | None = None) -> TorchRuntime:
    """A runtime for vectors by the model's pooling, or of the pooled states themselves."""
    check_pooling(model)
    default = model.pooling or Pooling()
    return TorchRuntime(TextVector(model, pool or default.pool, projection=default.projection and pool is None))


class _Evaluation:
    """The threads that use a model in evaluation mode, and its modules that were in training mode before the first."""

    def __init__(self) -> None:
        self.threads = 0
        self.trained: list[nn.Module] = []


_evaluations: "WeakKeyDictionary[nn.Module, _Evaluation]" = WeakKeyDictionary()
_lock = Lock()


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch all modules to evaluation mode; the last thread switches back those that were in training mode."""
    with _lock:
        evaluation = _evaluations.setdefault(model, _Evaluation())
        evaluation.threads += 1
        trained = [module for module in model.modules() if module.training]
        evaluation.trained += trained
        for module in trained:
            module.training = False
    try:
        yield
    finally:
        with _lock:
            evaluation.threads -= 1
            if not evaluation.threads:
                for module in evaluation.trained:
                    module.training = True
                del _evaluations[model]
