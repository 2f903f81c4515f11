"""What happens inside a model while it reads one text: attention maps and dynamic kernels of every layer."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.record import Record

_MOST_ROWS = 16
_MOST_PAIRS = 1 << 15
"""Pairs of tokens per batch: each needs a number per layer and head, so that long texts are read one by one."""


@dataclass(frozen=True)
class Observation:
    """The maps and kernels of a model for one text."""

    tokens: tuple[str, ...]
    logs: tuple[Tensor, ...]
    """The logarithms of the attention maps of each layer [H, T, T], which keep the precision of small weights.
    Convolution heads have none."""
    kernels: tuple[Tensor, ...]
    """The dynamic kernels of each layer [H, T, K], each a distribution; empty without dynamic convolutions."""

    def maps(self, layer: int) -> Tensor:
        """The attention maps of a layer, counted from 1: [H, T, T]; each row sums to one."""
        return self.logs[layer - 1].exp()

    def mean_map(self) -> Tensor:
        """The mean over layers and heads: [T, T] (ConvBERT Fig. 2)."""
        return torch.stack([each.exp().mean(dim=0) for each in self.logs]).mean(dim=0)


def observe(model: Model, ids: Sequence[int], tokens: tuple[str, ...] = ()) -> Observation:
    """Run a model on one row, on the CPU."""
    [seen] = observe_rows(model, [ids])
    return replace(seen, tokens=tokens)


@torch.inference_mode()
def observe_rows(model: Model, rows: Sequence[Sequence[int]]) -> list[Observation]:
    """Run a model on rows of equal length, on the CPU; there is no padding, which released ConvBERTs read."""
    record = Record(states=None, attention=None, kernels=[], scores=[])
    model.eval()(torch.tensor([list(ids) for ids in rows]), record=record)
    scores, kernels = record.scores or [], record.kernels or []
    if scores[-1].isnan().any():
        raise InputError(
            "the attention of the model is not finite: its training has diverged; train it with a lower lr"
        )
    return [
        Observation(
            (),
            tuple(torch.log_softmax(each[row].float(), dim=-1) for each in scores),
            tuple(each[row].float().transpose(0, 1) for each in kernels),
        )
        for row in range(len(rows))
    ]


def equal_lengths(rows: Iterable[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Group rows into batches of equal length, whose maps fit into memory; the order changes."""
    for length, group in groupby(sorted(rows, key=len), key=len):
        while batch := list(islice(group, max(1, min(_MOST_ROWS, _MOST_PAIRS // length**2)))):
            yield batch


def log_mean(logs: Tensor) -> Tensor:
    """The logarithm of the mean map of the heads: [H, T, T] -> [1, T, T]."""
    return logs.logsumexp(dim=0, keepdim=True) - math.log(logs.shape[0])


def entropies(logs: Tensor) -> list[float]:
    """The entropy of each head in nats, averaged over tokens: 0 if every token attends to one token only."""
    # A weight of 0 contributes nothing.
    found: list[float] = torch.special.entr(logs.exp()).sum(dim=-1).mean(dim=-1).tolist()
    return found
