"""Launches of the relative attention kernels: memory, grids and block sizes."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lightbert.ops.flat_tokens import flat, is_flat, text_rule
from lightbert.ops.relative_attention.gradients import triton as gradients
from lightbert.ops.relative_attention.triton import attention_forward_kernel


@dataclass(frozen=True)
class Blocks:
    """The size of the tiles of one kernel."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None
    """The limit per thread, so that several programs fit on a processor; None for the compiler's choice."""


FORWARD = Blocks(64, 32, 4, 3)
PLAIN_FORWARD = Blocks(128, 64, 4, 3)
"""Without biases, whose addresses take many registers."""
NARROW_FORWARD = Blocks(128, 32, 4, 3)
"""The same for heads of at most `NARROW` channels."""
NARROW = 32
BY_QUERY = Blocks(64, 32, 4, 3)
BY_KEY = Blocks(32, 64, 4, 2)
WHOLE = Blocks(64, 128, 8, 2)
"""For rows of at most this number of keys, whose gradients one program computes."""
PLAIN_WHOLE = Blocks(32, 128, 4, 3)
"""The same without biases."""
ROW_BYTES = 128
"""The largest row of a head that these tiles are for, 64 channels in half precision: they fit into 99 KB of memory."""


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
        """The tiles of the forward pass."""
        if not self.is_plain:
            return self.fitting(FORWARD)
        return self.fitting(NARROW_FORWARD if self.block_each <= NARROW else PLAIN_FORWARD)

    @property
    def by_key_blocks(self) -> Blocks:
        """The tiles of the backward pass by keys; of all keys if one tile can have them."""
        whole = self.fitting(PLAIN_WHOLE if self.is_plain else WHOLE)
        return whole if self.query.shape[1] <= whole.keys else self.fitting(BY_KEY)

    def fitting(self, blocks: Blocks) -> Blocks:
        """Smaller tiles for single precision and wide heads."""
        share = max(1, self.block_each * self.query.element_size() // ROW_BYTES)
        return replace(blocks, queries=max(16, blocks.queries // share), keys=max(16, blocks.keys // share))

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The inputs in the order of the kernels' arguments."""
        return (self.query, self.key, self.value, self.by_query, self.by_key, text_rule(self.texts)[0], self.seed)

    def numbers(self) -> tuple[int, ...]:
        """The number of tokens, and the distance between tokens in memory."""
        return (self.query.shape[1], *(x.stride(1) for x in (self.query, self.key, self.value)))

    def settings(self, blocks: Blocks) -> dict[str, Any]:
        """The constants that a kernel is compiled for."""
        _, tokens, width = self.query.shape
        each = width // self.n_heads
        block_each = self.block_each
        # Two sizes for all lengths, so that batches of many lengths need few compiled kernels.
        longest = 64 if tokens <= 64 else 128
        queries, keys = min(blocks.queries, longest), min(blocks.keys, longest)
        biases = self.by_query if self.by_query is not None else self.by_key
        drop = round(self.dropout * 2**16)
        return {
            "n_heads": self.n_heads,
            "each": each,
            "scale": each**-0.5,
            "radius": 0 if biases is None else biases.shape[-1] // 2,
            # More than there are weights: beyond the band there may be no bias.
            "block_offsets": _power_of_2(1 if biases is None else biases.shape[-1] + 1),
            "clamp": self.clamp,
            "rule": text_rule(self.texts)[1],
            "drop": drop,
            "rescale": 2**16 / (2**16 - drop),
            "even": tokens % queries == 0 and tokens % keys == 0 and each == block_each,
            "precision": "ieee" if self.query.dtype is torch.float32 else "tf32",
            "block_each": block_each,
            "block_queries": queries,
            "block_keys": keys,
            "num_warps": blocks.warps,
            "num_stages": blocks.stages,
            "maxnreg": blocks.registers,
            "enable_fp_fusion": True,
        }

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


def _empty(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _token_stride(*written: Tensor, like: Tensor) -> int:
    """The distance between tokens that all tensors which a kernel writes must share."""
    for x in written:
        if x.shape != like.shape:
            raise ValueError(f"the given memory must have the shape {tuple(like.shape)}, got {tuple(x.shape)}")
        if not is_flat(x):
            raise ValueError(
                f"the given memory must have regular rows of contiguous channels, got strides {x.stride()}"
            )
    strides = {x.stride(1) for x in written}
    if len(strides) > 1:
        raise ValueError(f"the memory given for the gradients must have one token stride, got {sorted(strides)}")
    return strides.pop()


def forward(call: Call, *, out: Tensor | None = None, blocks: Blocks | None = None) -> tuple[Tensor, Tensor]:
    """The result [B, T, H·E], and the logarithms (to base 2) of the softmax's sums [B, H, T] for the backward pass.

    The result is written to ``out`` if given, which may be a slice of the channels of a wider tensor.
    """
    batch, tokens, _ = call.query.shape
    out = _empty(call.query) if out is None else out
    log_sums = torch.empty(batch, call.n_heads, tokens, dtype=torch.float32, device=out.device)
    if out.numel():
        settings = call.settings(blocks or call.forward_blocks)
        grid = call.programs(settings["block_queries"])
        numbers = (*call.numbers(), _token_stride(out, like=call.query))
        attention_forward_kernel[grid](*call.tensors(), out, log_sums, *numbers, **settings)
    return out, log_sums


def backward(
    call: Call,
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    *,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
    by_query_blocks: Blocks | None = None,
    by_key_blocks: Blocks | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of query, key, value and both biases.

    The first three are written to ``into`` if given: slices of the channels of wider tensors, with one token stride.
    """
    grad, out = flat(grad), flat(out)
    of_query, of_key, of_value = into or (_empty(call.query), _empty(call.key), _empty(call.value))
    of_by_query, of_by_key = (None if bias is None else _empty(bias) for bias in (call.by_query, call.by_key))
    if grad.numel():
        settings = call.settings(by_key_blocks or call.by_key_blocks)
        whole = call.query.shape[1] <= settings["block_keys"]
        written_stride = _token_stride(of_query, of_key, of_value, like=call.query)
        numbers = (*call.numbers(), grad.stride(1), written_stride)
        shared = None
        if not whole:
            shared = _empty(log_sums)
            query_settings = call.settings(by_query_blocks or call.fitting(BY_QUERY))
            grid = call.programs(query_settings["block_queries"])
            gradients.attention_query_kernel[grid](
                *call.tensors(),
                *(out, log_sums, grad, of_query, of_by_query, shared),
                *numbers,
                out.stride(1),
                **query_settings,
            )
        grid = call.programs(settings["block_keys"])
        gradients.attention_key_kernel[grid](
            *call.tensors(),
            *(log_sums, shared, grad, of_query, of_key, of_value, of_by_query, of_by_key),
            *numbers,
            whole=whole,
            **settings,
        )
    return of_query, of_key, of_value, of_by_query, of_by_key
