"""Question answering heads: BERT's start and end logits, and ELECTRA's joint prediction."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.activations import activation
from lightbert.nn.distributions import Initial, glorot


def mask_logits(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Set the logits of positions that aren't allowed to the lowest finite number.

    Deviation: the releases add −1000, which a large logit can exceed. The number is finite so that a row without
    allowed positions gets uniform probabilities instead of NaN.
    """
    return logits if allowed is None else logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)


def answer_positions(segments: Tensor, mask: Tensor | None) -> Tensor:
    """Return where an answer may start and end [B, T]: the second segment, and [CLS], which means "no answer"."""
    allowed = segments == 1
    if mask is not None:
        allowed = allowed & (mask != 0)
    # Not in place, because an exported graph would need a copy.
    first = torch.arange(segments.shape[1], device=segments.device) == 0
    return allowed | first


class SpanLogits(NamedTuple):
    """Start and end logits, each [..., T]."""

    start: Tensor
    end: Tensor


class Span(nn.Module):
    """Independent start and end logits for each token, from one dense layer (BERT §4.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, 2)

    def forward(self, states: Tensor, allowed: Tensor | None = None) -> SpanLogits:
        """`allowed` bool [..., T]: True where an answer may start and end; includes [CLS] if it means "no answer"."""
        start, end = self.output(states).unbind(-1)
        return SpanLogits(mask_logits(start, allowed), mask_logits(end, allowed))


class JointLogits(NamedTuple):
    """Logits of ELECTRA's joint head for S considered starts: 1 in training, up to `beam` in a search."""

    start: Tensor
    """[B, T]"""
    considered: Tensor
    """[B, S] positions of the considered starts"""
    end: Tensor
    """[B, S, T] end logits for each considered start"""
    impossible: Tensor
    """[B] high if the text contains no answer (answerable_logit in the release; its label is is_impossible)"""


class Candidates(NamedTuple):
    """Spans of a beam search, best first, each [B, S·E]. An end may precede its start; the decoder drops such spans."""

    start: Tensor
    end: Tensor
    score: Tensor
    """log p(start) + log p(end | start)"""


class BeamSpan(nn.Module):
    """ELECTRA's question answering head: p(start), p(end | start) and p(no answer).

    The end logits are computed from the state of each token and the state at the start: the true start in training,
    the `beam` most probable starts in a search. Allowed positions are [CLS] and the tokens of the second segment.
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
        """Glorot-uniform for the whole head: TensorFlow's default, as released."""
        return {name: glorot(weight) for name, weight in self.named_parameters() if name.endswith(".weight")}

    def forward(self, states: Tensor, allowed: Tensor | None = None, gold: Tensor | None = None) -> JointLogits:
        """`gold` int64 [B]: the true starts, for training; without it the most probable starts are used."""
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
        # A text can have fewer tokens than the beam. The minimum stays symbolic in an exported graph.
        return start.topk(min(self.beam, start.shape[-1])).indices

    def _end(self, states: Tensor, considered: Tensor) -> Tensor:
        at_start = states.gather(1, considered[:, :, None].expand(-1, -1, self.width))  # [B, S, D]
        # dense([h_start ; h_t]) = dense([h_start ; 0]) + dense([0 ; h_t]) - dense(0) avoids the [B, S, T, 2D] pairs.
        # Calling the layer, instead of reading its weights, supports adapters and quantized layers.
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
