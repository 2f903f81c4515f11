"""Calls of the relative attention kernels: tensors in their layout, block sizes and constants."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lightbert.ops.flat_tokens import flat, text_rule


@dataclass(frozen=True)
class Blocks:
    """The size of the tiles of one kernel."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None
    """The limit per thread, so that several programs fit on a processor; None for the compiler's choice."""


FORWARD = Blocks(64, 64, 4, 3, registers=128)
DROPOUT_FORWARD = Blocks(64, 64, 4, 2, registers=168)
"""With dropout, which needs registers for its random bits."""
BY_KEY_FORWARD = Blocks(64, 32, 4, 3)
"""With biases of keys, which are loaded for each score."""
PLAIN_FORWARD = Blocks(128, 64, 4, 3)
NARROW_FORWARD = Blocks(128, 32, 4, 3)
"""The same for heads of at most `NARROW` channels."""
NARROW = 32
BY_QUERY = Blocks(64, 32, 4, 3)
BY_KEY = Blocks(32, 64, 4, 2)
ROW_FORWARD = Blocks(64, 128, 4, 1, registers=128)
"""For rows of at most this number of keys, which one program computes, in one or two blocks of queries."""
PACKED_ROW_FORWARD = Blocks(64, 128, 4, 1, registers=168)
"""The same for packed rows, where text numbers are compared."""
PLAIN_ROW_FORWARD = Blocks(128, 128, 4, 1, registers=168)
"""The same without biases."""
LEAST_SLOTS = 32
"""A quarter of the keys of these rows: a tile has at most four parts."""
ROW = Blocks(128, 128, 8, 1)
"""For the gradients of rows of at most this number of tokens, which one program computes if `has_large_memory`."""
PLAIN_ROW = Blocks(64, 64, 4, 1)
"""The same without biases: a row has up to two of these blocks."""
NARROW_ROW = Blocks(64, 64, 4, 1, registers=168)
"""The same for heads of at most `NARROW` channels: three programs fit on a processor."""
ROW_BYTES = 128
"""The size of a token in one head, 64 channels in half precision, up to which these tiles fit into 99 KB."""


def has_large_memory(device: torch.device) -> bool:
    """Whether a program can use 163 KB of shared memory or more, as on A100, H100 and B200; on RTX GPUs it has 99."""
    if device.type != "cuda":
        return True
    capability = torch.cuda.get_device_capability(device)
    return capability == (8, 0) or capability[0] in (9, 10)


def _power_of_2(number: int) -> int:
    """The next power of two, at least 16: the smallest side of a matrix product."""
    return max(16, 1 << (number - 1).bit_length())


@dataclass(frozen=True)
class Call:
    """The tensors of one call, in the layout of the kernels, and their settings.

    query, key and value are [B, T, H·E], the biases [B, H, T, 2R+1] and contiguous.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    by_query: Tensor | None
    by_key: Tensor | None
    texts: Tensor | None
    seed: Tensor | None
    n_heads: int
    clamp: bool
    dropout: float

    @property
    def is_plain(self) -> bool:
        """Whether there are no biases."""
        return self.by_query is None and self.by_key is None

    @property
    def block_each(self) -> int:
        """The channels of a head, as a power of two."""
        return _power_of_2(self.query.shape[-1] // self.n_heads)

    @property
    def forward_blocks(self) -> Blocks:
        """The tiles of the forward pass in long rows."""
        if self.by_key is not None:
            return self.fitting(BY_KEY_FORWARD)
        if self.by_query is not None:
            return self.fitting(DROPOUT_FORWARD if self.dropout else FORWARD)
        return self.fitting(NARROW_FORWARD if self.block_each <= NARROW else PLAIN_FORWARD)

    @property
    def row_forward_blocks(self) -> Blocks | None:
        """The tiles of the forward pass if one program computes a row, otherwise None."""
        if self.share > 1 or self.by_key is not None or self.query.shape[1] > ROW_FORWARD.keys:
            return None
        if self.is_plain:
            return PLAIN_ROW_FORWARD
        return PACKED_ROW_FORWARD if text_rule(self.texts)[1] > 1 else ROW_FORWARD

    @property
    def row_blocks(self) -> Blocks | None:
        """The tiles of the backward pass if one program can compute a row, otherwise None."""
        tokens = self.query.shape[1]
        if self.share > 1 or tokens > (2 * PLAIN_ROW.queries if self.is_plain else ROW.queries):
            return None
        if self.is_plain:
            return NARROW_ROW if self.block_each <= NARROW else PLAIN_ROW
        if tokens <= PLAIN_ROW.queries:
            return PLAIN_ROW
        return ROW if has_large_memory(self.query.device) else None

    @property
    def share(self) -> int:
        """By how much tiles have to be smaller for single precision and wide heads."""
        return max(1, self.block_each * self.query.element_size() // ROW_BYTES)

    def fitting(self, blocks: Blocks) -> Blocks:
        """Tiles that are as much smaller as necessary."""
        return replace(blocks, queries=max(16, blocks.queries // self.share), keys=max(16, blocks.keys // self.share))

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The inputs in the order of the kernels' arguments."""
        return (self.query, self.key, self.value, self.by_query, self.by_key, text_rule(self.texts)[0], self.seed)

    def numbers(self) -> tuple[int, ...]:
        """The number of tokens, and the distances between tokens in memory."""
        return (self.query.shape[1], *(x.stride(1) for x in (self.query, self.key, self.value)))

    def block_sizes(self, blocks: Blocks) -> tuple[int, int]:
        """The queries and keys of a tile: two sizes for all lengths, so that batches need few compiled kernels."""
        longest = 64 if self.query.shape[1] <= 64 else 128
        return min(blocks.queries, longest), min(blocks.keys, longest)

    def settings(self, blocks: Blocks) -> dict[str, Any]:
        """The constants that every kernel is compiled for."""
        _, tokens, width = self.query.shape
        each = width // self.n_heads
        queries, keys = self.block_sizes(blocks)
        drop = round(self.dropout * 2**16)
        return {
            "n_heads": self.n_heads,
            "each": each,
            "scale": each**-0.5,
            "rule": text_rule(self.texts)[1],
            "drop": drop,
            "rescale": 2**16 / (2**16 - drop),
            "even": tokens % queries == 0 and tokens % keys == 0 and each == self.block_each,
            "precision": "ieee" if self.query.dtype is torch.float32 else "tf32",
            "block_each": self.block_each,
            "num_warps": blocks.warps,
            "num_stages": blocks.stages,
            "maxnreg": blocks.registers,
            "enable_fp_fusion": True,
        }

    def band(self) -> dict[str, Any]:
        """The constants of kernels with biases."""
        biases = self.by_query if self.by_query is not None else self.by_key
        offsets = 1 if biases is None else biases.shape[-1]
        # More than there are weights: beyond the band there may be no bias.
        block_offsets = max(_power_of_2(offsets + 1), LEAST_SLOTS)
        return {"radius": offsets // 2, "clamp": self.clamp, "block_offsets": block_offsets}

    def tile_settings(self, blocks: Blocks) -> dict[str, Any]:
        """The constants of kernels that divide rows into tiles."""
        queries, keys = self.block_sizes(blocks)
        return {**self.settings(blocks), **self.band(), "block_queries": queries, "block_keys": keys}

    def programs(self, block: int) -> tuple[int]:
        """The grid: blocks of tokens in each head of each row."""
        batch, tokens, _ = self.query.shape
        return (-(-tokens // block) * batch * self.n_heads,)


def prepare(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    by_query: Tensor | None,
    by_key: Tensor | None,
    texts: Tensor | None,
    seed: Tensor | None,
    n_heads: int,
    clamp: bool,
    dropout: float,
) -> Call:
    """Bring tensors of any layout into that of the kernels."""
    by_query, by_key = (None if bias is None else bias.contiguous() for bias in (by_query, by_key))
    return Call(flat(query), flat(key), flat(value), by_query, by_key, texts, seed, n_heads, clamp, dropout)
