"""Attention maps of a teacher and a student for the same text, and their KL divergence head by head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor

from lightbert.analysis.attention_maps import attention_scores, check_layers, log_maps, read_ids, tokens_of
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.objectives.distill.losses import attention_transfer
from lightbert.objectives.distill.pair import check_pair, shared_heads


@dataclass(frozen=True)
class LayerAttention:
    """The attention maps of a layer; each row sums to one."""

    layer: int
    """Counted from 1."""
    teacher: Tensor  # [H, T, T]
    student: Tensor  # [H, T, T]
    divergences: tuple[float, ...]
    """KL(teacher ‖ student) of each head, averaged over tokens."""

    @property
    def divergence(self) -> float:
        """The mean over heads: the AT loss of this layer (MobileBERT Eq. 3)."""
        return fmean(self.divergences)


@dataclass(frozen=True)
class AttentionComparison:
    """The attention maps of two models for one text."""

    tokens: tuple[str, ...]
    layers: tuple[LayerAttention, ...]
    mean: bool = False
    """Whether the maps are means over heads."""

    def of(self, layers: Sequence[int]) -> "AttentionComparison":
        """Select layers, in the given order."""
        check_layers(layers, len(self.layers))
        return replace(self, layers=tuple(self.layers[layer - 1] for layer in layers))


def compare_attention(teacher: Model, student: Model, text: str, *, mean: bool = False) -> AttentionComparison:
    """Run both models on [CLS] text [SEP], on the CPU, and compare their attention maps.

    Compares the heads that attention transfer compares: those that both models have, without convolution heads. With
    ``mean``, compares the mean over these heads, or over all heads where they don't correspond.
    """
    check_pair(teacher, student, None)
    depth = len(student.blocks)
    if len(teacher.blocks) != depth:
        raise InputError(
            f"teacher and student must have the same number of layers, got {len(teacher.blocks)} and {depth}; "
            "give models of equal depth"
        )
    shared = shared_heads(teacher, student)
    if not shared and not mean:
        raise InputError(
            f"teacher and student must have the same number of heads, got {teacher.config.n_heads} and "
            f"{student.config.n_heads}; compare the mean over heads with --mean"
        )
    tokenizer = student.tokenizer or teacher.tokenizer
    if tokenizer is None:
        raise InputError("neither model has a tokenizer; add a tokenizer.json to one of the folders")
    ids = read_ids(
        text, tokenizer, min((model.positions for model in (teacher, student) if model.positions), default=0)
    )
    maps = [
        [log_maps(scores, shared, mean=mean) for scores in attention_scores(model, ids)] for model in (teacher, student)
    ]
    return AttentionComparison(
        tokens=tokens_of(ids, tokenizer),
        layers=tuple(_compare_layer(number, *pair) for number, pair in enumerate(zip(*maps, strict=True), start=1)),
        mean=mean,
    )


def _compare_layer(layer: int, teacher: Tensor, student: Tensor) -> LayerAttention:
    tokens = teacher.shape[-1]
    keep = torch.ones(1, tokens)
    pairs = zip(teacher.split(1, dim=1), student.split(1, dim=1), strict=True)
    divergences = tuple(attention_transfer(*pair, keep).item() / tokens for pair in pairs)
    return LayerAttention(layer, teacher[0].exp(), student[0].exp(), divergences)
