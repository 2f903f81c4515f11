"""A head's outputs for rows of any length, without padding in them: what prediction and evaluation share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightbert.data.batches.batch import Specials
from lightbert.data.batches.padding import grouped, padded
from lightbert.data.examples.features import Features
from lightbert.nn.encoder import Encoder
from lightbert.objectives.task import answers
from lightbert.tasks.kinds.kind import Outputs

Array = NDArray[np.int64]

_TOKENS_PER_ROW = 128
# Roughly where convbert-small was quickest on ragged rows, on one core of a Neoverse-N1 and on an H200.
_LEAST = {"cpu": 256, "cuda": 32768}
_MOST = {"cpu": 4096, "cuda": 65536}
# The logarithm of a probability is never below this, but for what the head forbids.
_FORBIDDEN = -1e30


def run(model: Encoder, head: str, features: Features, specials: Specials, batch: int = 0) -> Outputs:
    """Run the model where it is, without gradient and dropout: what the head says about each row, in their order.

    Rows of like length go together. `batch` counts rows of 128 tokens: of shorter ones there are more in a batch, of
    longer ones fewer, so that each takes about as much time and memory; 0 = as many as suit the device. A model whose
    convolutions read padding is never shown any, so that what it says about a text does not depend on its neighbours.
    """
    outputs: list[tuple[NDArray[Any], ...]] = [()] * len(features)
    device, lengths = model.table.device, features.lengths
    least = _LEAST.get(device.type, _LEAST["cpu"])
    most = batch * _TOKENS_PER_ROW or _MOST.get(device.type, _MOST["cpu"])
    one_per_row = head in ("classify", "regress")
    waiting: list[tuple[Array, tuple[Tensor, ...]]] = []

    def collect() -> None:
        rows, given = waiting.pop()
        arrays = [(each.float() if each.is_floating_point() else each).cpu().numpy() for each in given]
        for row, each in zip(rows.tolist(), zip(*arrays, strict=True), strict=True):
            outputs[row] = each if one_per_row else _unpadded(each, int(lengths[row]))

    with _at_rest(model), torch.inference_mode(), _autocast(device):
        for rows in grouped(lengths, least=min(least, most), most=most, alike=model.released_padding):
            length = int(lengths[rows[-1]])
            inputs = padded(features, rows, length, specials.pad).to(device)
            given = answers(model, head, inputs, padded=bool(lengths[rows[0]] < length))
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
def _at_rest(model: Encoder) -> Iterator[None]:
    """Without dropout; a model that was being trained goes on afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
