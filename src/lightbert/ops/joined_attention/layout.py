"""Which channels of joined streams are queries, keys, values and biases."""

from typing import NamedTuple

from torch import Tensor

ALIGNMENT = 16
"""The channels of each bias are a multiple of it: tokens start at multiples of 32 bytes if those of heads are one."""


class Layout(NamedTuple):
    """H heads of E channels: queries, keys and values, then the weights of 2R+1 offsets by query and by key, if any."""

    n_heads: int
    each: int
    offsets: int = 0
    by_query: bool = False
    by_key: bool = False

    @property
    def bias_width(self) -> int:
        """The channels of one kind of bias, padded to a multiple of `ALIGNMENT`."""
        used = self.n_heads * self.offsets
        return used + -used % ALIGNMENT

    @property
    def widths(self) -> list[int]:
        """The channels of each stream."""
        return [self.n_heads * self.each] * 3 + [self.bias_width] * (self.by_query + self.by_key)

    @property
    def width(self) -> int:
        """The channels of all streams."""
        return sum(self.widths)

    def heads(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Views of queries, keys and values [B, H, T, E], and of both biases [B, H, T, 2R+1]."""
        query, key, value, *biases = streams.split(self.widths, dim=-1)
        query, key, value = (x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in (query, key, value))
        views = [self._weights(bias) for bias in biases]
        by_key = views.pop() if self.by_key else None
        return query, key, value, views.pop() if views else None, by_key

    def _weights(self, bias: Tensor) -> Tensor:
        used = bias[..., : self.n_heads * self.offsets]
        weights: Tensor = used.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return weights

    def unused(self, streams: Tensor) -> list[Tensor]:
        """Views of the channels that pad the biases."""
        biases = streams.split(self.widths, dim=-1)[3:]
        return [bias[..., self.n_heads * self.offsets :] for bias in biases]
