"""A Record collects what happens inside a forward pass, for those who ask for it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

_MAPS = ("attention", "kernels", "scores")


@dataclass
class Record:
    """Lists that the parts append to, layer by layer. Set one to None to leave it out.

    A part that must show its attention computes it openly; without a record it takes the fused path, which never
    writes a square of scores.
    """

    states: list[Tensor] | None = field(default_factory=list)
    """After the embeddings and after each block: depth + 1 tensors [B, T, D]."""
    attention: list[Tensor] | None = field(default_factory=list)
    """Attention probabilities of each block: [B, H, T, T]."""
    kernels: list[Tensor] | None = field(default_factory=list)
    """The kernels of dynamic convolutions, one distribution per token and head: [B, T, H, K]."""
    scores: list[Tensor] | None = None
    """Attention scores of each block before the softmax, hidden keys at -inf: [B, H, T, T]. Off unless asked for."""
    states_of: Collection[int] | None = None
    """Keep the states of these layers only, 0 for the embeddings and n for block n; None = all."""
    maps_of: Collection[int] | None = None
    """Keep attention, kernels and scores of these blocks only, counted from 1; None = all."""

    def keep_state(self, layer: int, state: Tensor) -> None:
        """Append the state after a layer if it is wanted."""
        if self.states is not None and (self.states_of is None or layer in self.states_of):
            self.states.append(state)

    def records_maps(self, layer: int) -> bool:
        """Whether anything inside block ``layer`` is wanted."""
        wanted = self.maps_of is None or layer in self.maps_of
        return wanted and any(getattr(self, name) is not None for name in _MAPS)

    def for_block(self) -> "Record":
        """An empty record of what is wanted inside a block."""
        return Record(None, **{name: None if getattr(self, name) is None else [] for name in _MAPS})

    def keep_maps(self, block: "Record") -> None:
        """Append what a block recorded."""
        for name in _MAPS:
            if (kept := getattr(self, name)) is not None:
                kept += getattr(block, name)
