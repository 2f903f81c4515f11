"""Records of hidden states, attention maps and kernels of a forward pass."""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

_MAPS = ("attention", "kernels", "scores")


@dataclass
class Record:
    """Lists that the layers append to. Set a list to None to leave it out.

    Recording attention disables the fused attention kernel, which never materializes the [B, H, T, T] scores.
    """

    states: list[Tensor] | None = field(default_factory=list)
    """After the embeddings and after each block: depth + 1 tensors [B, T, D]."""
    attention: list[Tensor] | None = field(default_factory=list)
    """Attention probabilities of each block: [B, H, T, T]."""
    kernels: list[Tensor] | None = field(default_factory=list)
    """The kernels of dynamic convolutions, one distribution per token and head: [B, T, H, K]."""
    scores: list[Tensor] | None = None
    """Attention scores of each block before the softmax, masked keys at -inf: [B, H, T, T]. Off by default."""
    states_of: Collection[int] | None = None
    """Keep the states of these layers only, 0 for the embeddings and n for block n; None = all."""
    maps_of: Collection[int] | None = None
    """Keep attention, kernels and scores of these blocks only, counted from 1; None = all."""

    def keep_state(self, layer: int, state: Tensor) -> None:
        """Append the state after a layer if the layer is selected."""
        if self.states is not None and (self.states_of is None or layer in self.states_of):
            self.states.append(state)

    def records_maps(self, layer: int) -> bool:
        """Whether attention, kernels or scores of block ``layer`` are recorded."""
        selected = self.maps_of is None or layer in self.maps_of
        return selected and any(getattr(self, name) is not None for name in _MAPS)

    def for_block(self) -> "Record":
        """Return an empty record with the same maps for one block."""
        return Record(None, **{name: None if getattr(self, name) is None else [] for name in _MAPS})

    def keep_maps(self, block: "Record") -> None:
        """Append the maps of a block's record."""
        for name in _MAPS:
            if (kept := getattr(self, name)) is not None:
                kept += getattr(block, name)
