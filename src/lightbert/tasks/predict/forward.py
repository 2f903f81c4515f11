"""The outputs of an inference module for rows of any length, without padding: used by prediction and evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lightbert.data.batches.batch import Specials
from lightbert.data.batches.padding import group_by_length, pad_rows
from lightbert.data.examples.features import Features
from lightbert.tasks.kinds.kind import Outputs

Array = NDArray[np.int64]

_TOKENS_PER_ROW = 128
# Roughly where convbert-small was quickest on ragged rows, on one core of a Neoverse-N1 and on an H200.
_LEAST = {"cpu": 256, "cuda": 32768}
_MOST = {"cpu": 4096, "cuda": 65536}
_PER_TEXT = ("classify", "regress", "nsp", "pooler", "vector")
# The logarithm of a probability is never below this, but for what the head forbids.
_FORBIDDEN = -1e30


class Runtime(Protocol):
    """What computes outputs from tensors: `lightbert.nn.inference`, an exported file, or another library.

    Called with ids, mask and segments [B, T], it returns what `Inference` documents for the head of that name. The mask
    is None when no row of the batch is padded.
    """

    @property
    def head(self) -> str:
        """The kind of head, or "vector"."""

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""

    @property
    def reads_padding(self) -> bool:
        """Whether outputs depend on the padding beside a text; such a runtime gets rows of one length only."""

    def __call__(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> tuple[Tensor, ...]:
        """Tensors whose first dimension is B."""


def run(runtime: Runtime, features: Features, specials: Specials, batch: int = 0) -> Outputs:
    """Call a runtime without gradient and dropout and return its outputs for each row, in their order.

    Rows of similar length go together. `batch` counts rows of 128 tokens: of shorter ones there are more in a batch, of
    longer ones fewer, so that each takes about as much time and memory; 0 = as many as suit the device. The outputs
    for a text don't depend on its neighbours in the batch.
    """
    outputs: list[tuple[NDArray[Any], ...]] = [()] * len(features)
    device, lengths = runtime.device, features.lengths
    least = _LEAST.get(device.type, _LEAST["cpu"])
    most = batch * _TOKENS_PER_ROW or _MOST.get(device.type, _MOST["cpu"])
    one_per_row = runtime.head in _PER_TEXT
    waiting: list[tuple[Array, tuple[Tensor, ...]]] = []

    def collect() -> None:
        rows, given = waiting.pop()
        arrays = [(each.float() if each.is_floating_point() else each).cpu().numpy() for each in given]
        for row, each in zip(rows.tolist(), zip(*arrays, strict=True), strict=True):
            outputs[row] = each if one_per_row else _unpadded(each, int(lengths[row]))

    with _evaluating(runtime), torch.inference_mode(), _autocast(device):
        for rows in group_by_length(
            lengths, min_tokens=min(least, most), max_tokens=most, equal_lengths=runtime.reads_padding
        ):
            length = int(lengths[rows[-1]])
            inputs = pad_rows(features, rows, length, specials.pad).to(device)
            # Nothing is paid for masking where every row is as long as the batch is wide.
            mask = inputs.mask if lengths[rows[0]] < length else None
            given = runtime(inputs.ids, mask, inputs.segments)
            # The host collects one batch while the device works on the next.
            if waiting:
                collect()
            waiting.append((rows, given))
        if waiting:
            collect()
    return outputs


def _unpadded(arrays: tuple[NDArray[Any], ...], length: int) -> tuple[NDArray[Any], ...]:
    match arrays:
        case (start, end, score, impossible):
            # A search over few tokens fills up with forbidden ones, among them padding.
            found = score > _FORBIDDEN
            return start[found], end[found], score[found], impossible
    return tuple(array[:length] for array in arrays)


@contextmanager
def _evaluating(runtime: Runtime) -> Iterator[None]:
    """Without dropout; modules that are being trained return to training afterwards."""
    modules = list(runtime.modules()) if isinstance(runtime, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
