"""The spine of every model: embed, pass through the blocks, give the states. Read this first."""

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightbert.errors import InputError
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


class Encoder(nn.Module):
    """Embeddings, blocks, and the heads that read the states, if any.

    A body's parameters are called ``embeddings.*`` and ``blocks.*`` whatever heads it carries; those are
    ``heads.<kind>.*``. The masked-language head is tied to the word table by being given ``table`` when it is called.

    positions: the longest row the embeddings have positions for (0 = any length).
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
        """The word table [V, e]."""
        table: Tensor = self.embeddings.get_submodule("word").weight  # type: ignore[assignment]
        return table

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
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

        mask: boolean [B, T], True for real tokens; or integers that number the texts packed into a row, each in one
        piece, 0 for padding; or None when nothing is padded. A text's states don't depend on its neighbours in the
        batch, on the padding, or on the texts packed beside it.
        record: collects states, attention maps and kernels of the layers that it asks for.
        depth: how many blocks to run; None = all, 0 = the embeddings only.

        With ``checkpointing`` set, activations inside the blocks are computed again in the backward pass instead of
        being kept.
        """
        self._refuse(ids, mask, segments)
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

    def _refuse(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> None:
        """Say clearly what would otherwise end in an index error, in nothing, or in infinities."""
        if ids.dim() != 2:
            raise InputError(f"the ids are {list(ids.shape)}: give one row per text, [batch, tokens]")
        tokens = ids.shape[1]
        if tokens == 0:
            raise InputError("a batch of texts without a single token: give each row at least one")
        if self.positions and tokens > self.positions:
            raise InputError(f"{tokens} tokens, but the model has {self.positions} positions: cut the texts")
        for name, given in (("mask is", mask), ("segments are", segments)):
            if given is not None and given.shape != ids.shape:
                raise InputError(f"the {name} {list(given.shape)} but the ids are {list(ids.shape)}: make them equal")
        if not self.fp16:
            autocast = torch.is_autocast_enabled(ids.device.type)
            halved = autocast and torch.get_autocast_dtype(ids.device.type) is torch.float16
            if halved or self.table.dtype is torch.float16:
                raise InputError(
                    "this model's activations reach 1e7, beyond fp16's 65504, because it has no normalisation: "
                    "use bfloat16 or float32"
                )


def _run(block: nn.Module, x: Tensor, mask: Mask, wanted: Record | None) -> tuple[Tensor, Record | None]:
    """One block, and what it recorded.

    Each block has a record of its own, always empty at first: compiled code is specialised on the length of its lists,
    and a block that is computed again would append to a shared one twice.
    """
    if wanted is None:
        return block(x, mask), None
    seen = wanted.for_block()
    return block(x, mask, seen), seen
