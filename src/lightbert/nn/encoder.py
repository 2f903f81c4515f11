"""The encoder that every model shares: embeddings, then blocks. Read this first."""

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightbert.errors import InputError
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


class Encoder(nn.Module):
    """Embeddings, blocks and optional heads.

    Parameter names don't depend on the heads: ``embeddings.*``, ``blocks.*`` and ``heads.<kind>.*``. The MLM head is
    tied to the word embeddings: its ``forward`` takes ``table``.

    positions: the maximum number of tokens per row (0 = unlimited).
    released_padding: let convolutions read the padding, as the released models do.
    fp16: False for models whose activations overflow in half precision.
    """

    def __init__(
        self,
        embeddings: nn.Module,
        blocks: Iterable[nn.Module],
        *,
        width: int,
        positions: int = 0,
        released_padding: bool = False,
        fp16: bool = True,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(blocks)
        self.heads = nn.ModuleDict()
        self.width, self.positions = width, positions
        self.released_padding, self.fp16 = released_padding, fp16
        self.checkpointing = False

    @property
    def table(self) -> Tensor:
        """The weight of the word embeddings [V, e]."""
        table: Tensor = self.embeddings.get_submodule("word").weight  # type: ignore[assignment]
        return table

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.table.device

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        record: Record | None = None,
        depth: int | None = None,
    ) -> Tensor:
        """Ids [B, T] -> states [B, T, D].

        mask: boolean [B, T], True for real tokens; or integers that number the texts packed into a row (each text
        contiguous, 0 for padding); or None if nothing is padded. A text's states don't depend on the other rows of the
        batch, on the padding, or on other texts packed into its row.
        record: collects states, attention maps and kernels of the layers it selects.
        depth: the number of blocks to run; None = all, 0 = the embeddings only.

        With ``checkpointing`` set, the activations inside the blocks are recomputed in the backward pass instead of
        being stored.
        """
        self._check_inputs(ids, mask, segments)
        prepared = Mask(mask, released=self.released_padding)
        x: Tensor = self.embeddings(ids, segments, prepared)
        if record is not None:
            record.keep_state(0, x)
        for layer, block in enumerate(islice(self.blocks, depth), start=1):
            wanted = record if record is not None and record.records_maps(layer) else None
            if self.checkpointing and torch.is_grad_enabled():
                x, seen = checkpoint(_run, block, x, prepared, wanted, use_reentrant=False)
            else:
                x, seen = _run(block, x, prepared, wanted)
            if record is not None:
                record.keep_state(layer, x)
                if seen is not None:
                    record.keep_maps(seen)
        return x

    def _check_inputs(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> None:
        """Check what would otherwise raise an index error, return nothing, or overflow."""
        if ids.dim() != 2:
            raise InputError(f"ids must have the shape [batch, tokens], got {list(ids.shape)}")
        tokens = ids.shape[1]
        if tokens == 0:
            raise InputError(f"ids must have at least one token per row, got the shape {list(ids.shape)}")
        if self.positions and tokens > self.positions:
            raise InputError(f"a row must have at most {self.positions} tokens, got {tokens}; truncate the texts")
        for name, given in (("mask", mask), ("segments", segments)):
            if given is not None and given.shape != ids.shape:
                raise InputError(f"{name} must have the shape of ids, {list(ids.shape)}, got {list(given.shape)}")
        if not self.fp16:
            autocast = torch.is_autocast_enabled(ids.device.type)
            halved = autocast and torch.get_autocast_dtype(ids.device.type) is torch.float16
            if halved or self.table.dtype is torch.float16:
                raise InputError(
                    "this model has no normalization, so its activations (up to 1e7) overflow float16 (max 65504); "
                    "use bfloat16 or float32"
                )


def _run(block: nn.Module, x: Tensor, mask: Mask, wanted: Record | None) -> tuple[Tensor, Record | None]:
    """Run one block; return its output and its record.

    Each block gets a new, empty record: compiled code is specialized on the length of its lists, and a block that is
    recomputed would append to a shared record twice.
    """
    if wanted is None:
        return block(x, mask), None
    seen = wanted.for_block()
    return block(x, mask, seen), seen
