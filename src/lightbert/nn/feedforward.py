"""The feed-forward network of a block, with its residual and norm: dense or grouped."""

from torch import Tensor, nn

from lightbert.nn.activations import activation as activation_by_name
from lightbert.nn.norms import NoNorm, Norm, add_and_norm, project_add_and_norm
from lightbert.nn.plain_layers import is_plain
from lightbert.nn.projections import linear, project_and_activate, project_large
from lightbert.ops.relu_feedforward import has_kernel, relu_feedforward


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
        narrow = self._by_one_kernel(x)
        if narrow is not None:
            return narrow
        large = project_large(x, self.up, self.activation, self.down)
        if large is not None:
            change, bias = large
            return add_and_norm(x, change, self.norm, self.dropout, bias)
        inner = project_and_activate(x, self.up, self.activation)
        return project_add_and_norm(x, inner, self.down, self.norm, self.dropout)

    def _by_one_kernel(self, x: Tensor) -> Tensor | None:
        """The result of MobileBERT's feed-forward by its kernel; None if the layers are others or not plain."""
        up, down, norm = self.up, self.down, self.norm
        if not is_plain(up, nn.Linear) or not is_plain(down, nn.Linear) or not is_plain(norm, NoNorm):
            return None
        if not has_kernel(x, up.out_features) or not is_plain(self.activation, nn.ReLU):
            return None
        if not is_plain(self.dropout, nn.Dropout) or (self.dropout.p and self.dropout.training):
            return None
        return relu_feedforward(x, up.weight, up.bias, down.weight, down.bias, norm.weight, norm.bias)
