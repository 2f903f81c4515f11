"""The attention maps of a model for a text, and the entropy of each head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightbert.data.examples.specials import Specials
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.record import Record

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class LayerMaps:
    """The attention maps of a layer; each row sums to one. Convolution heads have none."""

    layer: int
    """Counted from 1."""
    maps: Tensor  # [H, T, T]
    entropies: tuple[float, ...]
    """The entropy in nats of each head, averaged over tokens: 0 if a token attends to one token only."""

    @property
    def entropy(self) -> float:
        """The mean over heads."""
        return fmean(self.entropies)


@dataclass(frozen=True)
class AttentionMaps:
    """The attention maps of a model for one text."""

    tokens: tuple[str, ...]
    layers: tuple[LayerMaps, ...]
    mean: bool = False
    """Whether the maps are means over heads."""

    def of(self, layers: Sequence[int]) -> "AttentionMaps":
        """Select layers, in the given order."""
        check_layers(layers, len(self.layers))
        return replace(self, layers=tuple(self.layers[layer - 1] for layer in layers))


def attention_maps(model: Model, text: str, *, mean: bool = False) -> AttentionMaps:
    """Run a model on [CLS] text [SEP], on the CPU, and return its attention maps, or with ``mean`` their mean."""
    tokenizer = model.require_tokenizer()
    ids = read_ids(text, tokenizer, model.positions)
    logs = [log_maps(scores, mean=mean)[0] for scores in attention_scores(model, ids)]
    if not logs:
        raise InputError("the model has no attention heads; give a model with attention")
    return AttentionMaps(
        tokens=tokens_of(ids, tokenizer),
        layers=tuple(_layer(number, each) for number, each in enumerate(logs, start=1)),
        mean=mean,
    )


def _layer(layer: int, logs: Tensor) -> LayerMaps:
    maps = logs.exp()
    # A weight of 0 contributes nothing.
    entropies = torch.special.entr(maps).sum(dim=-1).mean(dim=-1)
    return LayerMaps(layer, maps, tuple(entropies.tolist()))


def check_layers(layers: Sequence[int], depth: int) -> None:
    """Check that layers, counted from 1, exist."""
    for layer in layers:
        if not 1 <= layer <= depth:
            raise InputError(f"layers must be in [1, {depth}], got {layer}")


def read_ids(text: str, tokenizer: "Tokenizer", longest: int) -> list[int]:
    """Encode a text as [CLS] text [SEP]; ``longest`` 0 means no limit."""
    from tokenizers import Tokenizer as _Tokenizer

    # A copy, because the tokenizer of a model may be configured to truncate and pad.
    copy = _Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    pieces = copy.encode(text, add_special_tokens=False).ids
    if not pieces:
        raise InputError(f"the text {text!r} has no tokens; give a sentence")
    specials = Specials.of(copy)
    ids = [specials.cls, *pieces, specials.sep]
    if 0 < longest < len(ids):
        raise InputError(f"the text must have at most {longest} tokens, got {len(ids)}; give a shorter one")
    return ids


def tokens_of(ids: Sequence[int], tokenizer: "Tokenizer") -> tuple[str, ...]:
    """The tokens of ids, to label plots."""
    return tuple(tokenizer.id_to_token(token) or "" for token in ids)


@torch.inference_mode()
def attention_scores(model: Model, ids: list[int]) -> list[Tensor]:
    """The attention scores of each layer before the softmax: [1, H, T, T]."""
    scores: list[Tensor] = []
    model.eval()(torch.tensor([ids]), record=Record(states=None, attention=None, kernels=None, scores=scores))
    return scores


def log_maps(scores: Tensor, heads: int = 0, *, mean: bool) -> Tensor:
    """The log attention maps [1, H, T, T] of the first ``heads`` heads (0 = all), or with ``mean`` of their mean.

    Logarithms keep the precision of small weights.
    """
    kept = scores[:, :heads] if heads else scores
    logs = torch.log_softmax(kept.float(), dim=-1)
    return logs.logsumexp(dim=1, keepdim=True) - math.log(logs.shape[1]) if mean else logs
