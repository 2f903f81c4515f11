"""What a teacher and a student attend to in the same text, head by head, and how far apart that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightbert.data.batches.batch import Specials
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.record import Record
from lightbert.objectives.distill.losses import attention_transfer
from lightbert.objectives.distill.pair import check_pair, shared_heads

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class LayerAttention:
    """The attention maps of a layer: a row for each token, which sums to one over the tokens it looks at."""

    layer: int
    """Counted from 1."""
    teacher: Tensor  # [H, T, T]
    student: Tensor  # [H, T, T]
    divergences: tuple[float, ...]
    """KL(teacher ‖ student) of each head, averaged over the tokens."""

    @property
    def divergence(self) -> float:
        """The average over the heads: AT of this layer (MobileBERT Eq. 3)."""
        return fmean(self.divergences)


@dataclass(frozen=True)
class AttentionComparison:
    """Two models that read one text."""

    tokens: tuple[str, ...]
    layers: tuple[LayerAttention, ...]
    mean: bool = False
    """Whether the maps are averages over the heads."""

    def of(self, layers: Sequence[int]) -> "AttentionComparison":
        """The part that is about some layers, in the order in which they are given."""
        for layer in layers:
            if not 1 <= layer <= len(self.layers):
                raise InputError(f"there is no layer {layer}: give numbers from 1 to {len(self.layers)}")
        return replace(self, layers=tuple(self.layers[layer - 1] for layer in layers))


def compare_attention(teacher: Model, student: Model, text: str, *, mean: bool = False) -> AttentionComparison:
    """Let both read [CLS] text [SEP], on the CPU.

    The attention heads that both have are compared, as by attention transfer: of a mixer with convolution heads those
    that attend. With ``mean`` their average map is, or that of all heads where they don't correspond.
    """
    check_pair(teacher, student, None)
    depth = len(student.blocks)
    if len(teacher.blocks) != depth:
        raise InputError(
            f"the teacher has {len(teacher.blocks)} layers, the student {depth}: only layers of the same number are "
            "compared, so give models of equal depth"
        )
    shared = shared_heads(teacher, student)
    if not shared and not mean:
        raise InputError(
            f"the teacher has {teacher.config.n_heads} heads, the student {student.config.n_heads}: they don't "
            "correspond, so compare their average with --mean"
        )
    tokenizer = student.tokenizer or teacher.tokenizer
    if tokenizer is None:
        raise InputError("neither model has a tokenizer: put a tokenizer.json into one of the folders")
    ids = _read(text, tokenizer, min((model.positions for model in (teacher, student) if model.positions), default=0))
    maps = [[_log_maps(scores, shared, mean=mean) for scores in _scores(model, ids)] for model in (teacher, student)]
    return AttentionComparison(
        tokens=tuple(tokenizer.id_to_token(token) or "" for token in ids),
        layers=tuple(_compared(number, *pair) for number, pair in enumerate(zip(*maps, strict=True), start=1)),
        mean=mean,
    )


def _read(text: str, tokenizer: "Tokenizer", longest: int) -> list[int]:
    """The ids of a text between [CLS] and [SEP]; 0 = it may be as long as it likes."""
    from tokenizers import Tokenizer as _Tokenizer

    # A copy, because a tokenizer that came with a model may be set to cut and to pad by itself.
    whole = _Tokenizer.from_str(tokenizer.to_str())
    whole.no_truncation()
    whole.no_padding()
    pieces = whole.encode(text, add_special_tokens=False).ids
    if not pieces:
        raise InputError(f"the text {text!r} has no tokens: give a sentence")
    specials = Specials.of(whole)
    ids = [specials.cls, *pieces, specials.sep]
    if 0 < longest < len(ids):
        raise InputError(f"the text has {len(ids)} tokens, but the models read {longest}: give a shorter one")
    return ids


@torch.inference_mode()
def _scores(model: Model, ids: list[int]) -> list[Tensor]:
    """The scores of each layer before the softmax: [1, H, T, T]."""
    scores: list[Tensor] = []
    model.eval()(torch.tensor([ids]), record=Record(states=None, attention=None, kernels=None, scores=scores))
    return scores


def _log_maps(scores: Tensor, shared: int, *, mean: bool) -> Tensor:
    """Logarithms of the maps to compare, so that small weights keep their digits: [1, H, T, T]."""
    kept = scores[:, :shared] if shared else scores
    logs = torch.log_softmax(kept.float(), dim=-1)
    return logs.logsumexp(dim=1, keepdim=True) - math.log(logs.shape[1]) if mean else logs


def _compared(layer: int, teacher: Tensor, student: Tensor) -> LayerAttention:
    tokens = teacher.shape[-1]
    keep = torch.ones(1, tokens)
    pairs = zip(teacher.split(1, dim=1), student.split(1, dim=1), strict=True)
    divergences = tuple(attention_transfer(*pair, keep).item() / tokens for pair in pairs)
    return LayerAttention(layer, teacher[0].exp(), student[0].exp(), divergences)
