"""Relative attention in long rows: flash attention that adds the biases of a band to each tile of scores."""

import triton
import triton.language as tl

from lightbert.ops.relative_attention.slots.triton import any_tile, load_slots
from lightbert.ops.relative_attention.tiles.triton import (
    LOG2_E,
    bias_per_score,
    hide,
    is_near,
    kept,
    load_rows,
    load_texts,
    products,
    store_rows,
)


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
