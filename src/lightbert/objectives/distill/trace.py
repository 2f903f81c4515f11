"""The states and attention scores of a forward pass that a layer-by-layer comparison needs."""

from dataclasses import dataclass

from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.nn.record import Record


@dataclass
class Trace:
    """Recorded tensors of a forward pass; layers are numbered from 1, and layer 0 is the embeddings."""

    last: Tensor
    """The states after the last layer that ran: [B, T, D]."""
    states: dict[int, Tensor]
    """The states after each requested layer: [B, T, D]."""
    scores: dict[int, Tensor]
    """Attention scores before the softmax, masked keys at -inf: [B, H, T, T]."""


def trace(model: Encoder, batch: Batch, layers: range, *, attention: range = range(0), depth: int = 0) -> Trace:
    """Run the embeddings and the blocks up to the last of ``layers``, or up to ``depth`` if that is deeper.

    Records the states of ``layers`` and the scores of ``attention``; blocks without recorded scores use fused
    attention. At full depth ``last`` equals the model's output.
    """
    record = Record([], None, None, scores=[], states_of=layers, maps_of=attention)
    deepest = max(depth, layers.stop - 1, attention.stop - 1)
    last = model(batch.ids, batch.mask, batch.segments, record, depth=deepest)
    assert record.states is not None
    assert record.scores is not None
    states, scores = zip(layers, record.states, strict=True), zip(attention, record.scores, strict=True)
    return Trace(last, dict(states), dict(scores))
