"""Where an answer starts and ends in a text: BERT's two logits per token, and ELECTRA's joint prediction."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.activations import activation
from lightbert.nn.distributions import Initial, glorot


def mask_logits(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Push the logits of positions that cannot hold an answer to the lowest finite number.

    Deviation: the releases add −1000, which a large enough logit survives. Finite, so that a row without any
    allowed position gives uniform probabilities and not NaN.
    """
    return logits if allowed is None else logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)


def answer_positions(ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> Tensor:
    """Where an answer may start and end: in the second segment, or at [CLS], which means that there is none; [B, T]."""
    allowed = torch.zeros_like(ids, dtype=torch.bool) if segments is None else segments == 1
    if mask is not None:
        allowed = allowed & (mask != 0)
    # Not in place: an exported graph would have to copy for it.
    first = torch.arange(ids.shape[1], device=ids.device) == 0
    return allowed | first


class SpanLogits(NamedTuple):
    """Start and end logits, each [..., T]."""

    start: Tensor
    end: Tensor


class Span(nn.Module):
    """One dense layer to a start and an end logit per token, independent of each other (BERT §4.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, 2)

    def forward(self, states: Tensor, allowed: Tensor | None = None) -> SpanLogits:
        """`allowed` bool [..., T]: True where an answer may start and end, [CLS] included if it means "none"."""
        start, end = self.output(states).unbind(-1)
        return SpanLogits(mask_logits(start, allowed), mask_logits(end, allowed))


class JointLogits(NamedTuple):
    """Logits of ELECTRA's joint head. S starts were considered: 1 in training, up to `beam` in a search."""

    start: Tensor
    """[B, T]"""
    considered: Tensor
    """[B, S] positions of the starts that `end` was computed for"""
    end: Tensor
    """[B, S, T] given each considered start"""
    impossible: Tensor
    """[B] high when the text holds no answer (the release calls it answerable_logit, its label is is_impossible)"""


class Candidates(NamedTuple):
    """Spans of a beam search, best first, each [B, S·E]. An end may precede its start: the decoder drops those."""

    start: Tensor
    end: Tensor
    score: Tensor
    """log p(start) + log p(end | start)"""


class BeamSpan(nn.Module):
    """ELECTRA's question answering head: p(end | start), and whether there is an answer at all.

    The end of a span is predicted from the token and the state at the start: the true start in training, the `beam`
    most probable ones in a search. Allowed positions are [CLS] and the second segment's tokens.
    """

    def __init__(self, width: int, *, inner: int = 512, beam: int = 20, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.beam = beam
        self.dropout = nn.Dropout(dropout)
        self.activation = activation("gelu")
        self.start = nn.Linear(width, 1)
        self.end_dense = nn.Linear(2 * width, inner)
        self.end_output = nn.Linear(inner, 1)
        self.answer_dense = nn.Linear(2 * width, inner)
        self.answer_output = nn.Linear(inner, 1)

    def initial_weights(self) -> Initial:
        """The release leaves the whole head at TensorFlow's default, Glorot-uniform."""
        return {name: glorot(weight) for name, weight in self.named_parameters() if name.endswith(".weight")}

    def forward(self, states: Tensor, allowed: Tensor | None = None, gold: Tensor | None = None) -> JointLogits:
        """`gold` int64 [B], the true starts, when training; without it the most probable starts are considered."""
        states = self.dropout(states)  # [B, T, D]
        start = mask_logits(self.start(states).squeeze(-1), allowed)
        considered = self._most_probable(start) if gold is None else gold[:, None]  # [B, S]
        end = self._end(states, considered)
        if allowed is not None:
            end = mask_logits(end, allowed[:, None, :])
        return JointLogits(start, considered, end, self._impossible(states, start))

    def search(self, logits: JointLogits) -> Candidates:
        """Pair every considered start with its `beam` most probable ends."""
        starts = logits.start.float().log_softmax(-1).gather(1, logits.considered)  # [B, S]
        ends = logits.end.float().log_softmax(-1)
        ends, positions = ends.topk(min(self.beam, ends.shape[-1]))  # [B, S, E]
        score, order = (starts[:, :, None] + ends).flatten(1).sort(descending=True)  # [B, S·E]
        start = logits.considered[:, :, None].expand_as(positions).flatten(1)
        return Candidates(start.gather(1, order), positions.flatten(1).gather(1, order), score)

    def _most_probable(self, start: Tensor) -> Tensor:
        # A text shorter than the beam has fewer starts. An exported graph keeps this minimum symbolic.
        return start.topk(min(self.beam, start.shape[-1])).indices

    def _end(self, states: Tensor, considered: Tensor) -> Tensor:
        at_start = states.gather(1, considered[:, :, None].expand(-1, -1, self.width))  # [B, S, D]
        # dense([h_start ; h_t]) = dense([h_start ; 0]) + dense([0 ; h_t]) - dense(0): the [B, S, T, 2D] pairs are never
        # formed, and the layer is called, so that what an adapter or a quantizer makes of it counts.
        bias = self.end_dense(states.new_zeros(2 * self.width))
        given = self.end_dense(F.pad(at_start, (0, self.width)))[:, :, None]  # [B, S, 1, inner]
        of_token = (self.end_dense(F.pad(states, (self.width, 0))) - bias)[:, None]  # [B, 1, T, inner]
        pairs = self.activation(given + of_token)  # [B, S, T, inner]
        logits: Tensor = self.end_output(pairs)
        return logits.squeeze(-1)

    def _impossible(self, states: Tensor, start: Tensor) -> Tensor:
        probabilities = start.float().softmax(-1).to(states.dtype)  # [B, T]
        expected = (probabilities[:, None] @ states).squeeze(1)  # [B, D]
        pair = torch.cat((states[:, 0], expected), dim=-1)
        logits: Tensor = self.answer_output(self.activation(self.answer_dense(pair)))
        return logits.squeeze(-1)
