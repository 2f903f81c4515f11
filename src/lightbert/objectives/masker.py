"""Masking as a module, so that ``.to(device)`` also moves its vocabulary table."""

from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.masking import mask_batch
from lightbert.data.masking_settings import Masking


class Masker(nn.Module):
    """Mask tokens of a batch, as a pure function of (seed, step, row), on the batch's device.

    continues: [V], True for word pieces that continue a word; enables whole-word masking.
    """

    def __init__(
        self, masking: Masking, specials: Specials, *, vocab: int, seed: int, continues: Tensor | None = None
    ) -> None:
        super().__init__()
        self.masking, self.specials, self.vocab, self.seed = masking, specials, vocab, seed
        self.continues: Tensor | None
        self.register_buffer("continues", continues, persistent=False)

    def forward(self, batch: Batch) -> Batch:
        """Return the batch with masked ids, positions, targets and weights."""
        return mask_batch(
            batch, self.masking, self.specials, vocab=self.vocab, seed=self.seed, continues=self.continues
        )
