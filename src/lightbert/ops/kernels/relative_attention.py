"""Relative attention on a GPU: flash attention that adds the biases of a band to each tile of scores.

In short rows, one program has all queries and keys of a head, unless keys have biases: all keys are one tile, so that a
softmax needs no second pass and nothing is scaled again. The gradients are in `attention_gradients.py`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels import attention_gradients as gradients
from lightbert.ops.kernels.attention_tiles import (
    LOG2_E,
    any_tile,
    bias_per_score,
    fixed_tile,
    hide,
    is_near,
    kept,
    load_rows,
    load_slots,
    load_texts,
    products,
    store_rows,
)
from lightbert.ops.kernels.tiles import flat, is_flat, text_rule


@triton.jit
def attention_forward_kernel(
    query,
    key,
    value,
    by_query,
    by_key,
    texts,
    seed,
    out,
    log_sums,
    tokens,
    query_stride,
    key_stride,
    value_stride,
    out_stride,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    scale: tl.constexpr,
    radius: tl.constexpr,
    clamp: tl.constexpr,
    rule: tl.constexpr,
    drop: tl.constexpr,
    rescale: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_each: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    block_offsets: tl.constexpr,
):
    """The attention of one block of queries, and the logarithm of their softmax's sums for the backward pass."""
    tiles = tl.cdiv(tokens, block_queries)
    pair = tl.program_id(0) // tiles
    query_start = (tl.program_id(0) % tiles) * block_queries
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    log_sums += pair.to(tl.int64) * tokens
    if by_query is not None:
        by_query += pair.to(tl.int64) * tokens * (2 * radius + 1)
    if by_key is not None:
        by_key += pair.to(tl.int64) * tokens * (2 * radius + 1)
    if rule > 0:
        texts += row
    key += row * key_stride + head * each
    value += row * value_stride + head * each

    i = query_start + tl.arange(0, block_queries)
    q = load_rows(query + row * query_stride + head * each, query_stride, i, tokens, each, block_each, even)
    if by_query is not None and block_offsets <= block_keys:
        slots, low, high = load_slots(by_query, i[:, None], tokens, scale, radius, clamp, block_offsets)
    highest = tl.full([block_queries], float("-inf"), tl.float32)
    total = tl.zeros([block_queries], tl.float32)
    mixed = tl.zeros([block_queries, block_each], tl.float32)
    for key_start in range(0, tokens, block_keys):
        j = key_start + tl.arange(0, block_keys)
        k = load_rows(key, key_stride, j, tokens, each, block_each, even)
        v = load_rows(value, value_stride, j, tokens, each, block_each, even)
        near = is_near(query_start, key_start, radius, block_queries, block_keys)
        before = key_start < query_start
        of_query = None
        of_key = None
        if by_query is not None:
            if block_offsets <= block_keys:
                of_query = any_tile(slots, low, high, i[:, None], query_start, key_start, radius, block_keys)
            else:
                of_query = bias_per_score(
                    by_query, i[:, None], j[None, :], near, before, tokens, scale, radius, clamp, even
                )
        if by_key is not None:
            of_key = bias_per_score(
                by_key, j[None, :], i[:, None], near, not before, tokens, scale, radius, clamp, even
            )
        scores = products(q, k, of_query, of_key, precision)
        text_of_query = load_texts(texts, i[:, None], tokens, rule)
        text_of_key = load_texts(texts, j[None, :], tokens, rule)
        scores = hide(scores, text_of_query, text_of_key, j[None, :], tokens, rule, even)
        previous, highest = highest, tl.maximum(highest, tl.max(scores, axis=1) * (scale * LOG2_E))
        base = highest
        if rule > 0:
            # A block of keys may be hidden as a whole.
            base = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores * (scale * LOG2_E) - base[:, None])
        shrink = tl.exp2(previous - base)
        total = total * shrink + tl.sum(weights, axis=1)
        if drop > 0:
            weights = tl.where(kept(seed, pair, i[:, None], j[None, :], drop), weights, 0.0)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * shrink[:, None], input_precision=precision)

    # Queries beyond the row may see no key.
    visible = total > 0
    total = tl.where(visible, total, 1.0)
    mixed *= (rescale / total)[:, None]
    store_rows(out + row * out_stride + head * each, out_stride, i, mixed, tokens, each, block_each)
    tl.store(log_sums + i, tl.where(visible, highest, 0.0) + tl.log2(total), mask=i < tokens)


@triton.jit
def attention_row_forward_kernel(
    query,
    key,
    value,
    by_query,
    texts,
    seed,
    out,
    log_sums,
    tokens,
    query_stride,
    key_stride,
    value_stride,
    out_stride,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    scale: tl.constexpr,
    radius: tl.constexpr,
    clamp: tl.constexpr,
    rule: tl.constexpr,
    drop: tl.constexpr,
    rescale: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_each: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    block_offsets: tl.constexpr,
):
    """The attention of one row of one head, and the logarithm of its softmax's sums for the backward pass."""
    pair = tl.program_id(0)
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    log_sums += pair.to(tl.int64) * tokens
    if by_query is not None:
        by_query += pair.to(tl.int64) * tokens * (2 * radius + 1)
    if rule > 0:
        texts += row
    query += row * query_stride + head * each
    out += row * out_stride + head * each

    j = tl.arange(0, block_keys)
    k = load_rows(key + row * key_stride + head * each, key_stride, j, tokens, each, block_each, even)
    v = load_rows(value + row * value_stride + head * each, value_stride, j, tokens, each, block_each, even)
    # Loaded as vectors: as a row and a column of a tile they would decide how the scores are laid out.
    text_of_key = load_texts(texts, j, tokens, rule)
    for query_start in tl.static_range(0, block_keys, block_queries):
        i = query_start + tl.arange(0, block_queries)
        q = load_rows(query, query_stride, i, tokens, each, block_each, even)
        bias = None
        if by_query is not None:
            if block_offsets <= block_keys:
                slots, low, high = load_slots(by_query, i[:, None], tokens, scale, radius, clamp, block_offsets)
                bias = fixed_tile(slots, low, high, query_start, radius, block_keys)
            else:
                bias = bias_per_score(by_query, i[:, None], j[None, :], True, False, tokens, scale, radius, clamp, even)
        scores = tl.dot(q, tl.trans(k), bias, input_precision=precision)
        text_of_query = load_texts(texts, i, tokens, rule)
        scores = hide(scores, text_of_query[:, None], text_of_key[None, :], j[None, :], tokens, rule, even)
        highest = tl.max(scores, axis=1) * (scale * LOG2_E)
        if rule > 0:
            # All keys of a row may be hidden.
            highest = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores * (scale * LOG2_E) - highest[:, None])
        total = tl.sum(weights, axis=1)
        if rule > 0:
            total = tl.where(total > 0, total, 1.0)
        if drop > 0:
            weights = tl.where(kept(seed, pair, i[:, None], j[None, :], drop), weights, 0.0)
        mixed = tl.dot(weights.to(v.dtype), v, input_precision=precision)
        store_rows(out, out_stride, i, mixed * (rescale / total)[:, None], tokens, each, block_each)
        tl.store(log_sums + i, highest + tl.log2(total), mask=i < tokens)


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
"""The same for packed rows, where document ids are compared."""
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
    gradients.plain_attention_row_kernel[call.programs(call.query.shape[1])](
        *(query, key, value, texts, seed, out, log_sums, grad, found.query, found.key, found.value),
        *(*call.numbers(), grad.stride(1), found.token_stride(call), out.stride(1)),
        block=block,
        blocks=-(-call.query.shape[1] // block),
        **call.settings(blocks),
    )


def _biased_rows(call: Call, blocks: Blocks, grad: Tensor, log_sums: Tensor, found: Gradients) -> None:
    *strides, bias_stride = found.bias_strides()
    block, _ = call.block_sizes(blocks)
    gradients.biased_attention_row_kernel[call.programs(call.query.shape[1])](
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

    by_query = settings(BY_QUERY)
    gradients.attention_query_kernel[call.programs(by_query["block_queries"])](
        *(*call.tensors(), out, log_sums, grad, found.query, found.by_query, shared, *strides, out.stride(1)),
        **by_query,
    )
    by_key = settings(BY_KEY)
    gradients.attention_key_kernel[call.programs(by_key["block_keys"])](
        *(*call.tensors(), log_sums, shared, grad, found.key, found.value, found.by_key, *strides), **by_key
    )
