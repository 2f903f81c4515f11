"""Blocks of a mixer and a feed-forward: post-norm (BERT) and bottleneck (MobileBERT; inverted for IB-BERT)."""

from typing import Literal

from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import Mixer
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.mask import Mask
from lightbert.nn.norms import Norm
from lightbert.nn.record import Record


def _check_width(part: str, needs: int, where: str, has: int) -> None:
    if needs != has:
        raise InputError(f"the width of {part} ({needs}) must equal the width of {where} ({has})")


def _check_feedforward_width(feedforward: nn.Module, width: int) -> None:
    for part in feedforward.modules():
        if isinstance(part, FeedForward):
            _check_width("the feed-forward", part.width, "the block", width)


class PostNormBlock(nn.Module):
    """BERT's block: mixer, output projection, residual and norm, then the feed-forward."""

    def __init__(self, width: int, *, mixer: Mixer, feedforward: nn.Module, norm: Norm, dropout: float = 0.0) -> None:
        super().__init__()
        _check_width("the mixer's input", mixer.width, "the block", width)
        if mixer.value_width is not None:
            raise InputError(
                f"a post-norm block requires a mixer without value_width, got value_width = {mixer.value_width}"
            )
        _check_feedforward_width(feedforward, width)
        self.mixer = mixer
        self.output = nn.Linear(mixer.out_width, width)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm(width)
        self.feedforward = feedforward

    def forward(self, x: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        mixed = self.mixer(x, mask, record=record)
        result: Tensor = self.feedforward(self.norm(x + self.dropout(self.output(mixed))))
        return result


class BottleneckBlock(nn.Module):
    """MobileBERT's block: project to ``block_width``, apply mixer and feed-forward, project back (§3.1, Fig. 1).

    With ``block_width`` below ``width`` it is MobileBERT's bottleneck, above it IB-BERT's inverted bottleneck.
    ``mixer_input`` selects what the mixer reads: the stream inside the block ("narrow": MobileBERT-TINY), the stream
    outside ("wide": IB-BERT and the paper's Table 1), or a separate projection for queries and keys with values from
    outside ("shared": the released MobileBERT).
    """

    def __init__(
        self,
        width: int,
        block_width: int,
        *,
        mixer: Mixer,
        mixer_input: Literal["narrow", "shared", "wide"],
        feedforward: nn.Module,
        norm: Norm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_width("the mixer's input", mixer.width, "its stream", width if mixer_input == "wide" else block_width)
        if mixer_input == "shared":
            _check_width("the mixer's value stream", mixer.value_width or 0, "the stream outside the block", width)
        elif mixer.value_width is not None:
            raise InputError(
                f"mixer_input = {mixer_input!r} requires a mixer without value_width, "
                f"got value_width = {mixer.value_width}"
            )
        _check_feedforward_width(feedforward, block_width)
        self.enter, self.enter_norm = nn.Linear(width, block_width), norm(block_width)
        self.wide = mixer_input == "wide"
        self.shared = nn.Linear(width, block_width) if mixer_input == "shared" else None
        self.shared_norm = norm(block_width) if mixer_input == "shared" else None
        self.mixer = mixer
        self.output, self.norm = nn.Linear(mixer.out_width, block_width), norm(block_width)
        self.feedforward = feedforward
        self.leave, self.leave_norm = nn.Linear(block_width, width), norm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        inside = self.enter_norm(self.enter(x))  # [B, T, N]
        if self.shared is not None and self.shared_norm is not None:
            mixed = self.mixer(self.shared_norm(self.shared(x)), mask, value=x, record=record)
        else:
            mixed = self.mixer(x if self.wide else inside, mask, record=record)
        inside = self.feedforward(self.norm(inside + self.output(mixed)))
        result: Tensor = self.leave_norm(x + self.dropout(self.leave(inside)))
        return result
