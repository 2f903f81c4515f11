"""The interface of mixers: the part of a block that combines tokens."""

from torch import Tensor, nn

from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


class Mixer(nn.Module):
    """Maps ``width`` channels to ``out_width``; the output projection and the residual belong to the block.

    A mixer built with a ``value_width`` must be called with a second stream ``value`` of that width.
    """

    width: int
    value_width: int | None
    out_width: int

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """X [B, T, D] -> [B, T, out_width]."""
        raise NotImplementedError
