"""The feed-forward network of a block, with its residual and norm: dense or grouped."""

from torch import Tensor, nn

from lightbert.nn.activations import activation as activation_by_name
from lightbert.nn.norms import Norm, add_and_norm, project_add_and_norm
from lightbert.nn.projections import linear, project_and_activate, project_large


class FeedForward(nn.Module):
    """norm(x + down(activation(up(x)))), dense or in groups of channels (ConvBERT §3.3)."""

    def __init__(
        self, width: int, inner: int, *, activation: str, norm: Norm, groups: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = width
        self.up = linear(width, inner, groups)
        self.down = linear(inner, width, groups)
        self.activation = activation_by_name(activation)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm(width)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        large = project_large(x, self.up, self.activation, self.down)
        if large is not None:
            change, bias = large
            return add_and_norm(x, change, self.norm, self.dropout, bias)
        inner = project_and_activate(x, self.up, self.activation)
        return project_add_and_norm(x, inner, self.down, self.norm, self.dropout)
