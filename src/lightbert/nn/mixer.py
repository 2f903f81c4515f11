"""What a block asks of a mixer: the part in which tokens see each other."""

from torch import Tensor, nn

from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


class Mixer(nn.Module):
    """Reads a stream of ``width`` channels, gives ``out_width``; the block owns the projection back and the residual.

    A mixer built with a ``value_width`` must be called with a second stream ``value`` of that many channels.
    """

    width: int
    value_width: int | None
    out_width: int

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """Mix x [B, T, D] -> [B, T, out_width]."""
        raise NotImplementedError
