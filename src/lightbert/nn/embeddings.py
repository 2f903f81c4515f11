"""Token embeddings: plain, factorized (narrow tables, projected), trigram (three adjacent tokens, projected)."""

import torch
from torch import Tensor, nn

from lightbert.nn.init import Initial, glorot
from lightbert.nn.mask import Mask
from lightbert.nn.norms import Norm
from lightbert.ops.documents import neighbours


def table(rows: int, width: int) -> nn.Embedding:
    """Build an uninitialized embedding: on the meta device, torch's own initialization would import its compiler."""
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))


class PositionSegmentEmbeddings(nn.Module):
    """Position embeddings (none if ``positions`` is 0) and segment embeddings: the base of the classes below."""

    def __init__(self, width: int, positions: int, segments: int) -> None:
        super().__init__()
        self.position = table(positions, width) if positions else None
        self.segment = table(segments, width)

    def look_up(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Ids [B, T] -> rows of a table [B, T, width of the table]."""
        rows: Tensor = table(ids)
        return rows

    def add_positions_and_segments(self, x: Tensor, segments: Tensor | None, mask: Mask) -> Tensor:
        """Add the position and segment embeddings: [B, T, D] -> [B, T, D]."""
        x = x + (self.segment.weight[0] if segments is None else self.look_up(self.segment, segments))
        if self.position is None:
            return x
        if mask.positions is None:
            return x + self.position.weight[: x.shape[1]]
        return x + self.look_up(self.position, mask.positions)


class Embeddings(PositionSegmentEmbeddings):
    """Word + segment + position, normalized; projected if ``narrow`` differs from ``width`` (ELECTRA)."""

    def __init__(
        self,
        vocab: int,
        narrow: int,
        width: int,
        *,
        positions: int,
        segments: int,
        norm: Norm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(narrow, positions, segments)
        self.word = table(vocab, narrow)
        self.norm = norm(narrow)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(narrow, width) if narrow != width else None

    def initial_weights(self) -> Initial:
        """Glorot-uniform for the projection: TensorFlow's default, as released."""
        return {} if self.project is None else {"project.weight": glorot(self.project.weight)}

    def forward(self, ids: Tensor, segments: Tensor | None, mask: Mask) -> Tensor:
        """Ids [B, T] -> [B, T, D]."""
        words = self.look_up(self.word, ids)
        x: Tensor = self.dropout(self.norm(self.add_positions_and_segments(words, segments, mask)))
        return x if self.project is None else self.project(x)


class TrigramEmbeddings(PositionSegmentEmbeddings):
    """The narrow embeddings of the next, this and the previous token, concatenated and projected (MobileBERT §3.4).

    The order is that of the released code. A neighbour outside the text reads as zero; with released padding, the
    embedding of the padding is read.
    """

    def __init__(
        self,
        vocab: int,
        narrow: int,
        width: int,
        *,
        positions: int,
        segments: int,
        norm: Norm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, positions, segments)
        self.word = table(vocab, narrow)
        self.project = nn.Linear(3 * narrow, width)
        self.norm = norm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, segments: Tensor | None, mask: Mask) -> Tensor:
        """Ids [B, T] -> [B, T, D]."""
        previous, this, following = neighbours(self.look_up(self.word, ids), 3, mask.convolution_texts)
        trigrams = torch.cat([following, this, previous], dim=-1)  # [B, T, 3e]
        x: Tensor = self.dropout(self.norm(self.add_positions_and_segments(self.project(trigrams), segments, mask)))
        return x
