"""Inference with torch, on the device of the model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lightbert.models import Model
from lightbert.models.pooling import Pooling
from lightbert.nn.inference import Inference, LayerMaps, Pool, TextVector
from lightbert.tasks.predict.forward import CPU_CHUNK, CPU_TOKENS, Array, Arrays
from lightbert.tasks.predict.model_kind import encoder_of
from lightbert.tasks.predict.vectors import Embedder

_CUDA_TOKENS = (32768, 65536)
_CUDA_CHUNK = 16384


class TorchRuntime:
    """Runs a module of `lightbert.nn.inference` without gradients and dropout, on a GPU in bfloat16."""

    def __init__(self, inference: Inference | TextVector | LayerMaps) -> None:
        self.inference = inference
        self.head, self.reads_padding, self.device = inference.head, inference.reads_padding, inference.device
        cuda = self.device.type == "cuda"
        self.batch_tokens, self.chunk = (_CUDA_TOKENS, _CUDA_CHUNK) if cuda else (CPU_TOKENS, CPU_CHUNK)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Evaluation mode, no gradients, and autocast on a GPU."""
        kind = self.device.type
        autocast = torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")
        with _eval_mode(self.inference), torch.inference_mode(), autocast:
            yield

    def submit(self, ids: Array, mask: NDArray[np.bool_] | None, segments: Array) -> Callable[[], Arrays]:
        """Start to compute a batch; the returned function copies the outputs to the host."""
        inputs = (
            None if array is None else torch.from_numpy(array).to(self.device, non_blocking=True)
            for array in (ids, mask, segments)
        )
        results = self.inference(*inputs)
        return lambda: tuple((each.float() if each.is_floating_point() else each).cpu().numpy() for each in results)


class TorchVectors(TorchRuntime):
    """Runs an encoder and a pool."""

    def __init__(self, inference: TextVector) -> None:
        super().__init__(inference)
        self.width = inference.width


def embedder_of(
    model: Model, *, pool: Pool | None = None, normalize: bool | None = None, length: int = 0, batch: int = 0
) -> Embedder:
    """An embedder with the pooling of a sentence encoder by default, otherwise with the unscaled mean.

    length: the maximum tokens per row; 0 = that of the sentence encoder, or as in fine-tuning, or up to 512.
    """
    default = model.pooling or Pooling()
    return Embedder(
        TorchVectors(TextVector(model, pool or default.pool)),
        encoder_of(model, length or default.length),
        normalize=default.normalize if normalize is None else normalize,
        batch=batch,
    )


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Switch all modules to evaluation mode; those in training mode are switched back afterwards."""
    training = [each for each in module.modules() if each.training]
    for each in training:
        each.training = False
    try:
        yield
    finally:
        for each in training:
            each.training = True
