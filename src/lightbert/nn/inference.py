"""What a trained encoder computes from a batch: one function of tensors per head, and pooled text vectors.

Prediction, evaluation and the transformers wrappers all call these modules. Their contract,
``(ids, mask, segments) -> tuple of tensors``, is also that of an exported file or of another runtime.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import BeamSpan, MaskedLanguage, MultipleChoice, Span, SpanLogits
from lightbert.nn.heads.span import answer_positions
from lightbert.nn.record import Record

Pool = Literal["mean", "cls", "max"]
POOLS: tuple[Pool, ...] = ("mean", "cls", "max")


class Logits(NamedTuple):
    """The output of every head that gives one tensor."""

    logits: Tensor
    """[B, C] classify and nsp, [B] regress, [B, D] pooler, [B, T, C] tokens, [B, T] rtd, [B, T, V] mlm."""


class BeamAnswers(NamedTuple):
    """The output of the beam head: candidate answers, best first."""

    start: Tensor
    """[B, S] position of the first token"""
    end: Tensor
    """[B, S] position of the last token; may precede the start"""
    score: Tensor
    """[B, S] log p(start) + log p(end | start)"""
    impossible: Tensor
    """[B] logit, high when the text holds no answer"""


class Vectors(NamedTuple):
    """The output of `TextVector`."""

    vectors: Tensor
    """[B, D] in float32"""


def infer(
    encoder: Encoder,
    kind: str,
    ids: Tensor,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
    record: Record | None = None,
) -> Logits | SpanLogits | BeamAnswers:
    """What `Inference` computes, for callers that hold the encoder as a module of their own."""
    states, head = encoder(ids, mask, segments, record), encoder.heads[kind]
    if isinstance(head, BeamSpan):
        logits = head(states, answer_positions(ids, mask, segments))
        return BeamAnswers(*head.search(logits), logits.impossible)
    if isinstance(head, Span):
        spans: SpanLogits = head(states)
        return spans
    return Logits(head(states, encoder.table) if isinstance(head, MaskedLanguage) else head(states))


class _EncoderModule(nn.Module):
    """What both modules say about the encoder that they run."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.training = encoder, encoder.training

    @property
    def device(self) -> torch.device:
        """Where it computes, and where its inputs must be."""
        return self.encoder.device

    @property
    def reads_padding(self) -> bool:
        """Whether the states of a text depend on the padding beside it."""
        return self.encoder.released_padding


class Inference(_EncoderModule):
    """An encoder and one of its heads: ids, mask and segments [B, T] to the head's outputs.

    The outputs are `BeamAnswers` for the beam head, `SpanLogits` (start and end, each [B, T]) for the span head, and
    `Logits` for all others. The mask and the segments mean what they mean to the encoder.
    """

    def __init__(self, encoder: Encoder, head: str) -> None:
        super().__init__(encoder)
        if head not in encoder.heads:
            raise unknown("head", head, encoder.heads)
        if isinstance(encoder.heads[head], MultipleChoice):
            raise InputError("the choice head has no inference module: call it with the number of choices")
        self.head = head

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        record: Record | None = None,
    ) -> Logits | SpanLogits | BeamAnswers:
        """Run the encoder and the head; a record collects what happens inside the encoder."""
        return infer(self.encoder, self.head, ids, mask, segments, record)


class TextVector(_EncoderModule):
    """An encoder and a pool: ids, mask and segments [B, T] to one vector [B, D] per text.

    "mean" and "max" are taken over the real tokens of a row, [CLS] and [SEP] included; "cls" is the state of [CLS].
    """

    head = "vector"

    def __init__(self, encoder: Encoder, pool: Pool = "mean") -> None:
        super().__init__(encoder)
        if pool not in POOLS:
            raise unknown("pool", pool, POOLS)
        self.pool = pool

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Vectors:
        """Run the encoder and pool its states."""
        states = self.encoder(ids, mask, segments).float()  # [B, T, D]
        if self.pool == "cls":
            return Vectors(states[:, 0])
        if mask is None:
            return Vectors(states.mean(1) if self.pool == "mean" else states.amax(1))
        padding = (mask == 0).unsqueeze(-1)
        if self.pool == "max":
            return Vectors(states.masked_fill(padding, float("-inf")).amax(1))
        return Vectors(states.masked_fill(padding, 0.0).sum(1) / (~padding).sum(1).clamp(min=1))
