"""Inference modules: an encoder with one of its heads, and pooled text vectors.

Prediction, evaluation and the transformers wrappers all use these modules. Exported files have the same signature,
``(ids, mask, segments) -> tuple of tensors``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import (
    BeamSpan,
    MaskedLanguage,
    MultipleChoice,
    Pooler,
    Projection,
    Span,
    SpanLogits,
    TextHead,
    answer_positions,
)
from lightbert.nn.pooling import PackedTexts, pool_texts
from lightbert.nn.pooling_settings import POOLS, PROJECTION, Pool
from lightbert.nn.record import Record


class Logits(NamedTuple):
    """The output of every head that returns one tensor."""

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
    """[B] logit, high if the text contains no answer"""


class Vectors(NamedTuple):
    """The output of `TextVector`."""

    vectors: Tensor
    """[B, D] in float32"""


class Maps(NamedTuple):
    """The output of `LayerMaps`; K is 0 if the layer has no dynamic convolution."""

    attention: Tensor
    """[B, T, H, T]: each row of a head sums to one"""
    kernels: Tensor
    """[B, T, H, K]"""


def infer(
    encoder: Encoder,
    kind: str,
    ids: Tensor,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
    record: Record | None = None,
) -> Logits | SpanLogits | BeamAnswers:
    """Run an encoder and one of its heads: the function behind `Inference`."""
    head = encoder.heads[kind]
    if record is None and reads_words_alone(head):
        return Logits(head(None, mask=mask, ids=ids))
    states = encoder(ids, mask, segments, record)
    if isinstance(head, BeamSpan):
        segments = torch.zeros_like(ids) if segments is None else segments
        return _search(head, states, answer_positions(segments, mask))
    return _logits(encoder, head, states, ids, mask)


def reads_words_alone(head: nn.Module) -> bool:
    """Whether a head reads the ids and no states."""
    return isinstance(head, TextHead) and not head.reads_states


def infer_packed(
    encoder: Encoder, kind: str, ids: Tensor, texts: Tensor, segments: Tensor, places: PackedTexts
) -> Logits | SpanLogits | BeamAnswers:
    """Run an encoder and one of its heads on packed rows.

    texts [B, T]: the number of each token's text, 0 in the padding.
    Heads with one output per text and the beam head return N outputs, in the order of `places`, with positions counted
    from the start of the text. The other heads return one output per token of the packed rows.
    """
    head = encoder.heads[kind]
    if reads_words_alone(head):
        return Logits(head(None, mask=texts, places=places, ids=ids))
    states = encoder(ids, texts, segments)
    if isinstance(head, BeamSpan):
        rows, real = places.unpack(segments), places.real(ids.shape[1])
        return _search(head, places.unpack(states), answer_positions(rows, real))
    return _logits(encoder, head, states, ids, texts, places)


def _search(head: BeamSpan, states: Tensor, allowed: Tensor) -> BeamAnswers:
    logits = head(states, allowed)
    return BeamAnswers(*head.search(logits), logits.impossible)


def _logits(
    encoder: Encoder,
    head: nn.Module,
    states: Tensor,
    ids: Tensor,
    mask: Tensor | None,
    places: PackedTexts | None = None,
) -> Logits | SpanLogits:
    if isinstance(head, TextHead):
        return Logits(head(states, mask=mask, places=places, ids=ids))
    if isinstance(head, Pooler):
        return Logits(head(states, mask=mask, places=places))
    if isinstance(head, Span):
        spans: SpanLogits = head(states)
        return spans
    return Logits(head(states, encoder.table) if isinstance(head, MaskedLanguage) else head(states))


class _EncoderModule(nn.Module):
    """A module that runs an encoder."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.training = encoder, encoder.training

    @property
    def device(self) -> torch.device:
        """The device of the encoder and of the inputs."""
        return self.encoder.device

    @property
    def reads_padding(self) -> bool:
        """Whether the states of a text depend on its padding."""
        return self.encoder.released_padding


class Inference(_EncoderModule):
    """An encoder and one of its heads: ids, mask and segments [B, T] to the head's outputs.

    The outputs are `BeamAnswers` for the beam head, `SpanLogits` (start and end, each [B, T]) for the span head, and
    `Logits` for all others. `mask` and `segments` are those of `Encoder.forward`.
    """

    def __init__(self, encoder: Encoder, head: str) -> None:
        super().__init__(encoder)
        if head not in encoder.heads:
            raise unknown("head", head, encoder.heads)
        if isinstance(encoder.heads[head], MultipleChoice):
            raise InputError(
                "head 'choice' is not supported by Inference; call model.heads['choice'] with the number of choices"
            )
        self.head = head

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        record: Record | None = None,
    ) -> Logits | SpanLogits | BeamAnswers:
        """Run the encoder and the head; `record` collects states and maps of the encoder."""
        return infer(self.encoder, self.head, ids, mask, segments, record)

    def packed(
        self, ids: Tensor, texts: Tensor, segments: Tensor, places: PackedTexts
    ) -> Logits | SpanLogits | BeamAnswers:
        """Run the encoder and the head on packed rows; see `infer_packed`."""
        return infer_packed(self.encoder, self.head, ids, texts, segments, places)


class TextVector(_EncoderModule):
    """An encoder and a pool: ids, mask and segments [B, T] to one vector [B, D] per text.

    "mean" and "max" are taken over the real tokens of a row, [CLS] and [SEP] included; "cls" is the state of [CLS].
    projection: compute the vectors with the head "vector", which has a pool of its own.
    """

    head = PROJECTION

    def __init__(self, encoder: Encoder, pool: Pool = "mean", *, projection: bool = False) -> None:
        super().__init__(encoder)
        if pool not in POOLS:
            raise unknown("pool", pool, POOLS)
        self.pool, self.projection = pool, projection

    @property
    def width(self) -> int:
        """The number of values in a vector."""
        projection = self.encoder.heads[self.head] if self.projection else None
        return projection.output.out_features if isinstance(projection, Projection) else self.encoder.width

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Vectors:
        """Run the encoder and pool its states."""
        return self._pooled(self.encoder(ids, mask, segments), mask)

    def packed(self, ids: Tensor, texts: Tensor, segments: Tensor, places: PackedTexts) -> Vectors:
        """Run the encoder on packed rows and pool the states of each text, in the order of `places`."""
        return self._pooled(self.encoder(ids, texts, segments), texts, places)

    def _pooled(self, states: Tensor, mask: Tensor | None, places: PackedTexts | None = None) -> Vectors:
        if self.projection:
            return Vectors(self.encoder.heads[self.head](states, mask=mask, places=places).float())
        return Vectors(pool_texts(states.float(), self.pool, mask, places))


class TokenVectors(TextVector):
    """An encoder without a pool: ids, mask and segments [B, T] to its states [B, T, D]."""

    head = "states"

    def _pooled(self, states: Tensor, mask: Tensor | None, places: PackedTexts | None = None) -> Vectors:
        return Vectors(states.float())


class LayerVectors(_EncoderModule):
    """The mean and the maximum of the states of several layers, counted from 1: [B, layers · 2 · D] per text."""

    head = "vector"

    def __init__(self, encoder: Encoder, layers: Sequence[int]) -> None:
        super().__init__(encoder)
        self.layers = tuple(layers)

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Vectors:
        """Run the encoder and pool the states of the layers."""
        return self._pool(ids, mask, segments, None)

    def packed(self, ids: Tensor, texts: Tensor, segments: Tensor, places: PackedTexts) -> Vectors:
        """Run the encoder on packed rows and pool the states of each text, in the order of `places`."""
        return self._pool(ids, texts, segments, places)

    def _pool(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None, places: PackedTexts | None) -> Vectors:
        record = Record(attention=None, kernels=None, states_of=self.layers)
        self.encoder(ids, mask, segments, record, depth=max(self.layers))
        pooled = [pool_texts(states.float(), "mean-max", mask, places) for states in record.states or []]
        return Vectors(torch.cat(pooled, -1))


class LayerMaps(_EncoderModule):
    """The attention maps and dynamic kernels of one layer, counted from 1; later layers don't run."""

    head = "maps"

    def __init__(self, encoder: Encoder, layer: int) -> None:
        super().__init__(encoder)
        self.layer = layer

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Maps:
        """Run the layers up to this one, and return its maps token by token."""
        record = Record(states=None, maps_of=(self.layer,))
        self.encoder(ids, mask, segments, record, depth=self.layer)
        attention, kernels = record.attention or [], record.kernels or []
        maps = attention[0].float().transpose(1, 2)  # [B, T, H, T]
        return Maps(maps, kernels[0].float() if kernels else maps.new_zeros(*maps.shape[:3], 0))
