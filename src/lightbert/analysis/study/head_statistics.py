"""Statistics of attention heads over many texts: diagonal concentration, locality, entropy, overlap."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from lightbert.analysis.study.observation import Observation
from lightbert.errors import InputError

RADIUS = 4
"""Tokens at this distance or less are local (ConvBERT §6.5)."""
FURTHEST = 8
"""The largest distance in the profile of a head."""


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics over texts; matrices are [L, H] and means over all tokens."""

    texts: int
    tokens: int
    concentrations: tuple[float, ...]
    """C of the mean map over layers and heads, for each text of more than RADIUS + 1 tokens."""
    uniform: tuple[float, ...]
    """C of uniform attention for the same texts."""
    by_layer: Tensor
    """C of the mean map over the heads of a layer, mean over texts: [L]."""
    pooled: float
    """C of all texts together: the sum of all local weights over the sum of all others."""
    local: Tensor
    """The share of attention on tokens within RADIUS."""
    entropy: Tensor
    """In nats."""
    distance: Tensor
    """The mean distance in tokens."""
    special: Tensor
    """The share of attention on [CLS] and [SEP]."""
    profile: Tensor
    """The share of attention by offset from -FURTHEST to FURTHEST: [L, H, 2·FURTHEST + 1]."""
    overlap: Tensor
    """The overlap of each pair of heads, 1 if they attend alike: [L·H, L·H]."""

    @property
    def concentration(self) -> float:
        """The diagonal concentration C as in ConvBERT Table 8: per text, then the mean; nan if all are too short."""
        return fmean(self.concentrations) if self.concentrations else float("nan")

    @property
    def by_head(self) -> Tensor:
        """C of each head over all texts together [L, H]; the C of one head and text can be arbitrarily large."""
        return self.local / (1 - self.local).clamp(min=1e-12)

    @property
    def redundancy(self) -> Tensor:
        """The largest overlap of each head with another head of its layer: [L, H]; 0 for a single head."""
        layers, heads = self.local.shape
        blocks = self.overlap.unflatten(0, (layers, heads)).unflatten(2, (layers, heads))
        own = blocks[torch.arange(layers), :, torch.arange(layers)]  # [L, H, H]
        others: Tensor = own.masked_fill(torch.eye(heads, dtype=torch.bool), 0.0)
        return others.amax(dim=-1)


def concentration(weights: Tensor) -> Tensor:
    """The diagonal concentration of maps: Σ_{|i-j| ≤ 4} M / Σ_{|i-j| > 4} M; [..., T, T] -> [...] (ConvBERT §6.5)."""
    near = weights * _is_local(weights.shape[-1])
    return near.sum(dim=(-2, -1)) / (weights - near).sum(dim=(-2, -1))


def _is_local(tokens: int) -> Tensor:
    places = torch.arange(tokens)
    return (places[:, None] - places).abs() <= RADIUS


class _Sums:
    """Sums over the rows of all maps, in float64."""

    def __init__(self, layers: int, heads: int) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(layers, heads, *shape, dtype=torch.float64)

        self.local, self.entropy, self.distance, self.special = zeros(), zeros(), zeros(), zeros()
        self.profile = zeros(2 * FURTHEST + 1)
        self.overlap = torch.zeros(layers * heads, layers * heads, dtype=torch.float64)
        self.texts = self.tokens = 0
        self.concentrations: list[float] = []
        self.uniform: list[float] = []
        self.by_layer: list[Tensor] = []

    def add(self, observation: Observation) -> None:
        tokens = observation.logs[0].shape[-1]
        local, places = _is_local(tokens), torch.arange(tokens)
        distances = (places[:, None] - places).abs().float()
        means, roots = [], []
        for layer, logs in enumerate(observation.logs):
            maps = logs.exp()  # [H, T, T]
            self.local[layer] += (maps * local).sum(dim=(-2, -1))
            self.entropy[layer] += torch.special.entr(maps).sum(dim=(-2, -1))
            self.distance[layer] += (maps * distances).sum(dim=(-2, -1))
            self.special[layer] += maps[..., 0].sum(dim=-1) + maps[..., -1].sum(dim=-1)
            for offset in range(-min(FURTHEST, tokens - 1), min(FURTHEST, tokens - 1) + 1):
                self.profile[layer, :, FURTHEST + offset] += maps.diagonal(offset, -2, -1).sum(dim=-1)
            means.append(maps.mean(dim=0))
            roots.append((0.5 * logs).exp().flatten(1))
        # Bhattacharyya's coefficient of two distributions is the inner product of their square roots.
        rooted = torch.cat(roots)
        self.overlap += rooted @ rooted.T
        self.texts += 1
        self.tokens += tokens
        # In shorter texts every token is local.
        if tokens > RADIUS + 1:
            stacked = torch.stack(means)
            self.by_layer.append(concentration(stacked))
            self.concentrations.append(concentration(stacked.mean(dim=0)).item())
            self.uniform.append(concentration(torch.ones(tokens, tokens)).item())


def head_statistics(observations: Iterable[Observation]) -> HeadStatistics:
    """Compute the statistics of a model from its observations, of which only one is kept in memory."""
    sums: _Sums | None = None
    for observation in observations:
        sums = sums or _Sums(len(observation.logs), len(observation.logs[0]))
        sums.add(observation)
    if sums is None:
        raise InputError("none of the texts has tokens; give sentences in the language of the model")
    rows = sums.tokens
    layers = len(sums.local)
    local = (sums.local / rows).clamp(max=1.0)
    near = local.mean().item()
    return HeadStatistics(
        texts=sums.texts,
        tokens=rows,
        concentrations=tuple(sums.concentrations),
        uniform=tuple(sums.uniform),
        by_layer=torch.stack(sums.by_layer).mean(dim=0) if sums.by_layer else torch.full((layers,), float("nan")),
        pooled=near / (1 - near) if near < 1 else float("nan"),
        local=local,
        entropy=sums.entropy / rows,
        distance=sums.distance / rows,
        special=sums.special / rows,
        profile=sums.profile / rows,
        overlap=(sums.overlap / rows).clamp(max=1.0),
    )
