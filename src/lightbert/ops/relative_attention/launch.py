"""Launches of the relative attention kernels: memory and grids."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightbert.ops.flat_tokens import flat, is_flat
from lightbert.ops.relative_attention import calls
from lightbert.ops.relative_attention.calls import Blocks, Call
from lightbert.ops.relative_attention.gradients import triton as long_rows
from lightbert.ops.relative_attention.gradients.rows import triton as rows
from lightbert.ops.relative_attention.rows.triton import attention_row_forward_kernel
from lightbert.ops.relative_attention.triton import attention_forward_kernel


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


@dataclass(frozen=True)
class Gradients:
    """The gradients of a call, or the memory that they are written to: slices of the channels of wider tensors.

    Those of query, key and value [B, T, H·E] have one token stride, those of both biases [B, H, T, 2R+1] equal strides.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    by_query: Tensor | None = None
    by_key: Tensor | None = None

    @classmethod
    def of(cls, call: Call) -> "Gradients":
        """Memory for the gradients of a call."""
        biases = (None if bias is None else _empty(bias) for bias in (call.by_query, call.by_key))
        return cls(_empty(call.query), _empty(call.key), _empty(call.value), *biases)

    def token_stride(self, call: Call) -> int:
        """The distance between tokens in memory."""
        return _token_stride(self.query, self.key, self.value, like=call.query)

    def bias_strides(self) -> tuple[int, int, int]:
        """The distances of rows, heads and tokens in the gradients of biases."""
        strides = {bias.stride() for bias in (self.by_query, self.by_key) if bias is not None}
        if len(strides) > 1 or any(last != 1 for *_, last in strides):
            raise ValueError(
                f"the memory given for the gradients of biases must have contiguous weights and equal strides,"
                f" got {sorted(strides)}"
            )
        row, head, token, _ = strides.pop() if strides else (0, 0, 0, 1)
        return row, head, token


def forward(call: Call, *, out: Tensor | None = None, blocks: Blocks | None = None) -> tuple[Tensor, Tensor]:
    """The result [B, T, H·E], and the logarithms (to base 2) of the softmax's sums [B, H, T] for the backward pass.

    The result is written to ``out`` if given, which may be a slice of the channels of a wider tensor. ``blocks`` are
    tiles of other sizes, of a row if one program computes it.
    """
    batch, tokens, _ = call.query.shape
    out = _empty(call.query) if out is None else out
    log_sums = torch.empty(batch, call.n_heads, tokens, dtype=torch.float32, device=out.device)
    if out.numel():
        query, key, value, by_query, by_key, texts, seed = call.tensors()
        others = (texts, seed, out, log_sums, *call.numbers(), _token_stride(out, like=call.query))
        row_blocks = call.row_forward_blocks
        if row_blocks is not None:
            settings = call.tile_settings(blocks or row_blocks)
            attention_row_forward_kernel[call.programs(tokens)](query, key, value, by_query, *others, **settings)
        else:
            settings = call.tile_settings(blocks or call.forward_blocks)
            grid = call.programs(settings["block_queries"])
            attention_forward_kernel[grid](query, key, value, by_query, by_key, *others, **settings)
    return out, log_sums


def backward(
    call: Call,
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    *,
    into: Gradients | None = None,
    row_blocks: Blocks | None = None,
) -> Gradients:
    """The gradients, written to ``into`` if given. ``row_blocks`` are tiles of rows that one program computes."""
    grad, out = flat(grad), flat(out)
    found = into or Gradients.of(call)
    if grad.numel():
        blocks = call.row_blocks and (row_blocks or call.row_blocks)
        if blocks is None:
            _long_rows(call, grad, out, log_sums, found)
        elif call.is_plain:
            _plain_rows(call, blocks, grad, out, log_sums, found)
        else:
            _biased_rows(call, blocks, grad, log_sums, found)
    return found


def _plain_rows(call: Call, blocks: Blocks, grad: Tensor, out: Tensor, log_sums: Tensor, found: Gradients) -> None:
    query, key, value, _, _, texts, seed = call.tensors()
    block, _ = call.block_sizes(blocks)
    rows.plain_attention_row_kernel[call.programs(call.query.shape[1])](
        *(query, key, value, texts, seed, out, log_sums, grad, found.query, found.key, found.value),
        *(*call.numbers(), grad.stride(1), found.token_stride(call), out.stride(1)),
        block=block,
        blocks=-(-call.query.shape[1] // block),
        **call.settings(blocks),
    )


def _biased_rows(call: Call, blocks: Blocks, grad: Tensor, log_sums: Tensor, found: Gradients) -> None:
    *strides, bias_stride = found.bias_strides()
    block, _ = call.block_sizes(blocks)
    rows.biased_attention_row_kernel[call.programs(call.query.shape[1])](
        *(*call.tensors(), log_sums, grad, found.query, found.key, found.value, found.by_query, found.by_key),
        *(*call.numbers(), grad.stride(1), found.token_stride(call), *strides),
        block=block,
        bias_stride=bias_stride,
        **call.settings(blocks),
        **call.band(),
    )


def _long_rows(call: Call, grad: Tensor, out: Tensor, log_sums: Tensor, found: Gradients) -> None:
    *bias_strides, bias_stride = found.bias_strides()
    strides = (*call.numbers(), grad.stride(1), found.token_stride(call), *bias_strides)
    shared = _empty(log_sums)

    def settings(blocks: Blocks) -> dict[str, Any]:
        return {**call.tile_settings(call.fitting(blocks)), "bias_stride": bias_stride}

    by_query = settings(calls.BY_QUERY)
    long_rows.attention_query_kernel[call.programs(by_query["block_queries"])](
        *(*call.tensors(), out, log_sums, grad, found.query, found.by_query, shared, *strides, out.stride(1)),
        **by_query,
    )
    by_key = settings(calls.BY_KEY)
    long_rows.attention_key_kernel[call.programs(by_key["block_keys"])](
        *(*call.tensors(), log_sums, shared, grad, found.key, found.value, found.by_key, *strides), **by_key
    )
