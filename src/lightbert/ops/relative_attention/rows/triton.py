"""Relative attention in short rows, where one program has all queries and keys of a head, and keys have no biases.

All keys of a row are one tile, so that a softmax needs no second pass and nothing is scaled again.
"""

import triton
import triton.language as tl

from lightbert.ops.relative_attention.slots.triton import fixed_tile, load_slots
from lightbert.ops.relative_attention.tiles.triton import (
    LOG2_E,
    bias_per_score,
    hide,
    kept,
    load_rows,
    load_texts,
    store_rows,
)


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
