"""Run an inference module on rows of any length, batched by length; outputs have no padding."""

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
from lightbert.errors import InputError
from lightbert.tasks.kinds.kind import Outputs

Array = NDArray[np.int64]

_TOKENS_PER_ROW = 128
# Tokens per batch: roughly where convbert-small was fastest on rows of mixed lengths, on one core of a Neoverse-N1
# and on an H200.
_MIN_TOKENS = {"cpu": 256, "cuda": 32768}
_MAX_TOKENS = {"cpu": 4096, "cuda": 65536}
_PER_TEXT = ("classify", "regress", "nsp", "pooler", "vector")
# Log-probabilities below this mark candidates that the head has masked out.
_MASKED = -1e30


class Runtime(Protocol):
    """The interface of an inference backend: `lightbert.nn.inference`, an exported file, or another library.

    It takes ids, mask and segments [B, T] and returns the outputs that `Inference` documents for the head. The mask is
    None if no row of the batch is padded.
    """

    @property
    def head(self) -> str:
        """The name of the head, or "vector"."""

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""

    @property
    def reads_padding(self) -> bool:
        """Whether outputs depend on padding; if so, every batch contains rows of one length only."""

    def __call__(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> tuple[Tensor, ...]:
        """Compute the outputs; the first dimension of each is B."""


def run(runtime: Runtime, features: Features, specials: Specials, batch: int = 0) -> Outputs:
    """Run inference without gradients and dropout, and return the outputs of each row, in order.

    Rows of similar length are batched together. `batch` is in rows of 128 tokens: batches have more rows if they are
    shorter and fewer if they are longer, so that time and memory per batch are about constant; 0 = chosen for the
    device. The outputs for a text don't depend on the other texts of its batch.
    """
    outputs: list[tuple[NDArray[Any], ...]] = [()] * len(features)
    device, lengths = runtime.device, features.lengths
    minimum = _MIN_TOKENS.get(device.type, _MIN_TOKENS["cpu"])
    maximum = batch * _TOKENS_PER_ROW or _MAX_TOKENS.get(device.type, _MAX_TOKENS["cpu"])
    per_text = runtime.head in _PER_TEXT
    pending: list[tuple[Array, tuple[Tensor, ...]]] = []

    def collect() -> None:
        rows, results = pending.pop()
        arrays = [(each.float() if each.is_floating_point() else each).cpu().numpy() for each in results]
        finite = all(np.isfinite(array).all() for array in arrays)
        for row, each in zip(rows.tolist(), zip(*arrays, strict=True), strict=True):
            outputs[row] = each if per_text else _remove_padding(each, int(lengths[row]))
            if not finite and not all(np.isfinite(array).all() for array in outputs[row]):
                raise InputError(
                    "the outputs of the model are not finite: its training has diverged; train it again with a lower lr"
                )

    with _eval_mode(runtime), torch.inference_mode(), _autocast(device):
        for rows in group_by_length(
            lengths, min_tokens=min(minimum, maximum), max_tokens=maximum, equal_lengths=runtime.reads_padding
        ):
            length = int(lengths[rows[-1]])
            inputs = pad_rows(features, rows, length, specials.pad).to(device)
            # Without padding no mask is needed, which is faster.
            mask = inputs.mask if lengths[rows[0]] < length else None
            results = runtime(inputs.ids, mask, inputs.segments)
            # Copy the previous outputs to the host while the device computes the next ones.
            if pending:
                collect()
            pending.append((rows, results))
        if pending:
            collect()
    return outputs


def _remove_padding(arrays: tuple[NDArray[Any], ...], length: int) -> tuple[NDArray[Any], ...]:
    match arrays:
        case (start, end, score, impossible):
            # A beam search over few tokens fills up with masked candidates, including padding.
            found = score > _MASKED
            return start[found], end[found], score[found], impossible
    return tuple(array[:length] for array in arrays)


@contextmanager
def _eval_mode(runtime: Runtime) -> Iterator[None]:
    """Switch all modules to evaluation mode; those in training mode are switched back afterwards."""
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
