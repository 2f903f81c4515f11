"""Running a model as deep as somebody needs it, and keeping of each layer what they ask for."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightbert.data.batches.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


@dataclass
class Trace:
    """What a model did on its way; layers are numbered from 1, and 0 are the embeddings."""

    last: Tensor
    """Where the model was left: [B, T, D]."""
    states: dict[int, Tensor] = field(default_factory=dict)
    """After each layer that was asked for: [B, T, D]."""
    scores: dict[int, Tensor] = field(default_factory=dict)
    """Attention scores before the softmax, hidden keys at -inf: [B, H, T, T]."""


def trace(model: Encoder, batch: Batch, layers: range, *, attention: range = range(0), depth: int = 0) -> Trace:
    """Run the embeddings and the blocks up to the last of ``layers``, or up to ``depth`` where that is deeper.

    The states of ``layers`` and the scores of ``attention`` are kept; blocks whose scores nobody asks for take the
    fused path. At the full depth ``last`` is what the model itself would give.
    """
    x, mask = model.embed(batch.ids, batch.mask, batch.segments)
    result = Trace(x, {0: x} if 0 in layers else {})
    for layer in range(1, max(depth, layers.stop - 1, attention.stop - 1) + 1):
        arguments = (model.blocks[layer - 1], x, mask, layer in attention)
        if model.checkpointing and torch.is_grad_enabled():
            x, scores = checkpoint(_pass, *arguments, use_reentrant=False)
        else:
            x, scores = _pass(*arguments)
        if layer in layers:
            result.states[layer] = x
        if scores is not None:
            result.scores[layer] = scores
    result.last = x
    return result


def _pass(block: nn.Module, x: Tensor, mask: Mask, attention: bool) -> tuple[Tensor, Tensor | None]:
    """One block: its states, and its scores if they are asked for.

    Each block has a record of its own, always as empty: compiled code would be made again for every length of its list.
    """
    if not attention:
        return block(x, mask), None
    scores: list[Tensor] = []
    x = block(x, mask, Record(states=None, attention=None, kernels=None, scores=scores))
    return x, scores[0]
