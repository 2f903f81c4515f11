"""What a layer-by-layer comparison keeps of a forward pass: states and attention scores, by layer."""

from dataclasses import dataclass

from torch import Tensor

from lightbert.data.batches.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.nn.record import Record


@dataclass
class Trace:
    """What a model did on its way; layers are numbered from 1, and 0 are the embeddings."""

    last: Tensor
    """Where the model was left: [B, T, D]."""
    states: dict[int, Tensor]
    """After each layer that was asked for: [B, T, D]."""
    scores: dict[int, Tensor]
    """Attention scores before the softmax, hidden keys at -inf: [B, H, T, T]."""


def trace(model: Encoder, batch: Batch, layers: range, *, attention: range = range(0), depth: int = 0) -> Trace:
    """Run the embeddings and the blocks up to the last of ``layers``, or up to ``depth`` where that is deeper.

    The states of ``layers`` and the scores of ``attention`` are kept; blocks whose scores nobody asks for take the
    fused path. At the full depth ``last`` is what the model itself would give.
    """
    record = Record([], None, None, scores=[], states_of=layers, maps_of=attention)
    deepest = max(depth, layers.stop - 1, attention.stop - 1)
    last = model(batch.ids, batch.mask, batch.segments, record, depth=deepest)
    assert record.states is not None
    assert record.scores is not None
    states, scores = zip(layers, record.states, strict=True), zip(attention, record.scores, strict=True)
    return Trace(last, dict(states), dict(scores))
