"""The gradients of relative attention in long rows: one kernel per block of queries, one per block of keys.

Each program writes the gradients of its own queries or keys, so that all sums have a fixed order and need no atomics.
"""

import triton
import triton.language as tl

from lightbert.ops.relative_attention.gradients.biases.triton import clear_beyond, outer_sums, store_inner, store_outer
from lightbert.ops.relative_attention.tiles.triton import (
    LOG2_E,
    banded_products,
    hide,
    is_near,
    kept,
    load_rows,
    load_texts,
    store_rows,
)


@triton.jit
def attention_query_kernel(
    query,
    key,
    value,
    by_query,
    by_key,
    texts,
    seed,
    out,
    log_sums,
    grad,
    grad_query,
    grad_by_query,
    shared,
    tokens,
    query_stride,
    key_stride,
    value_stride,
    grad_stride,
    written_stride,
    bias_row_stride,
    bias_head_stride,
    out_stride,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    scale: tl.constexpr,
    radius: tl.constexpr,
    bias_stride: tl.constexpr,
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
    """The gradients of one block of queries and of their weights, and the sums ``shared`` by their softmax."""
    tiles = tl.cdiv(tokens, block_queries)
    pair = tl.program_id(0) // tiles
    query_start = (tl.program_id(0) % tiles) * block_queries
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    log_sums += pair.to(tl.int64) * tokens
    shared += pair.to(tl.int64) * tokens
    if by_query is not None:
        by_query += pair.to(tl.int64) * tokens * (2 * radius + 1)
        grad_by_query += (pair // n_heads).to(tl.int64) * bias_row_stride + head * bias_head_stride
    if by_key is not None:
        by_key += pair.to(tl.int64) * tokens * (2 * radius + 1)
    if rule > 0:
        texts += row
    key += row * key_stride + head * each
    value += row * value_stride + head * each

    i = query_start + tl.arange(0, block_queries)
    q = load_rows(query + row * query_stride + head * each, query_stride, i, tokens, each, block_each, even)
    do = load_rows(grad + row * grad_stride + head * each, grad_stride, i, tokens, each, block_each, even)
    o = load_rows(out + row * out_stride + head * each, out_stride, i, tokens, each, block_each, even)
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    tl.store(shared + i, delta, mask=i < tokens)
    log_sum = tl.load(log_sums + i, mask=i < tokens, other=0.0)
    dq = tl.zeros([block_queries, block_each], tl.float32)
    low = tl.zeros([block_queries], tl.float32)
    high = tl.zeros([block_queries], tl.float32)
    for key_start in range(0, tokens, block_keys):
        j = key_start + tl.arange(0, block_keys)
        k = load_rows(key, key_stride, j, tokens, each, block_each, even)
        v = load_rows(value, value_stride, j, tokens, each, block_each, even)
        near = is_near(query_start, key_start, radius, block_queries, block_keys)
        key_before = key_start < query_start
        scores = banded_products(
            *(q, k, by_query, by_key, i[:, None], j[None, :], near, key_before),
            *(tokens, scale, radius, clamp, even, precision),
        )
        text_of_query = load_texts(texts, i[:, None], tokens, rule)
        text_of_key = load_texts(texts, j[None, :], tokens, rule)
        scores = hide(scores, text_of_query, text_of_key, j[None, :], tokens, rule, even)
        weights = tl.exp2(scores * (scale * LOG2_E) - log_sum[:, None])
        change = tl.dot(do, tl.trans(v), input_precision=precision)
        if drop > 0:
            change = tl.where(kept(seed, pair, i[:, None], j[None, :], drop), change, 0.0)
        change = weights * (change * rescale - delta[:, None])
        dq = tl.dot(change.to(k.dtype), k, dq, input_precision=precision)
        if by_query is not None:
            store_inner(grad_by_query, change, i[:, None], j[None, :], near, tokens, bias_stride, radius)
            more_low, more_high = outer_sums(
                change, i[:, None], j[None, :], near, key_start < query_start, radius, clamp, 1
            )
            low += more_low
            high += more_high

    store_rows(grad_query + row * written_stride + head * each, written_stride, i, dq * scale, tokens, each, block_each)
    if by_query is not None:
        store_outer(grad_by_query, i, low, high, tokens, bias_stride, radius)
        clear_beyond(grad_by_query, i, tokens, bias_stride, radius, block_offsets)


@triton.jit
def attention_key_kernel(
    query,
    key,
    value,
    by_query,
    by_key,
    texts,
    seed,
    log_sums,
    shared,
    grad,
    grad_key,
    grad_value,
    grad_by_key,
    tokens,
    query_stride,
    key_stride,
    value_stride,
    grad_stride,
    written_stride,
    bias_row_stride,
    bias_head_stride,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    scale: tl.constexpr,
    radius: tl.constexpr,
    bias_stride: tl.constexpr,
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
    """The gradients of one block of keys and values and of their weights."""
    tiles = tl.cdiv(tokens, block_keys)
    pair = tl.program_id(0) // tiles
    key_start = (tl.program_id(0) % tiles) * block_keys
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    log_sums += pair.to(tl.int64) * tokens
    shared += pair.to(tl.int64) * tokens
    if by_query is not None:
        by_query += pair.to(tl.int64) * tokens * (2 * radius + 1)
    if by_key is not None:
        by_key += pair.to(tl.int64) * tokens * (2 * radius + 1)
        grad_by_key += (pair // n_heads).to(tl.int64) * bias_row_stride + head * bias_head_stride
    if rule > 0:
        texts += row
    query += row * query_stride + head * each
    grad += row * grad_stride + head * each

    j = key_start + tl.arange(0, block_keys)
    k = load_rows(key + row * key_stride + head * each, key_stride, j, tokens, each, block_each, even)
    v = load_rows(value + row * value_stride + head * each, value_stride, j, tokens, each, block_each, even)
    dk = tl.zeros([block_keys, block_each], tl.float32)
    dv = tl.zeros([block_keys, block_each], tl.float32)
    low = tl.zeros([block_keys], tl.float32)
    high = tl.zeros([block_keys], tl.float32)
    for query_start in range(0, tokens, block_queries):
        i = query_start + tl.arange(0, block_queries)
        q = load_rows(query, query_stride, i, tokens, each, block_each, even)
        do = load_rows(grad, grad_stride, i, tokens, each, block_each, even)
        log_sum = tl.load(log_sums + i, mask=i < tokens, other=0.0)
        near = is_near(query_start, key_start, radius, block_queries, block_keys)
        key_before = key_start < query_start
        scores = banded_products(
            *(k, q, by_query, by_key, i[None, :], j[:, None], near, key_before),
            *(tokens, scale, radius, clamp, even, precision),
        )
        text_of_query = load_texts(texts, i[None, :], tokens, rule)
        text_of_key = load_texts(texts, j[:, None], tokens, rule)
        scores = hide(scores, text_of_query, text_of_key, j[:, None], tokens, rule, even)
        weights = tl.exp2(scores * (scale * LOG2_E) - log_sum[None, :])
        change = tl.dot(v, tl.trans(do), input_precision=precision)
        applied = weights
        if drop > 0:
            keep = kept(seed, pair, i[None, :], j[:, None], drop)
            applied = tl.where(keep, weights, 0.0)
            change = tl.where(keep, change, 0.0)
        dv = tl.dot(applied.to(do.dtype), do, dv, input_precision=precision)
        delta = tl.load(shared + i, mask=i < tokens, other=0.0)
        change = weights * (change * rescale - delta[None, :])
        dk = tl.dot(change.to(q.dtype), q, dk, input_precision=precision)
        if by_key is not None:
            store_inner(grad_by_key, change, j[:, None], i[None, :], near, tokens, bias_stride, radius)
            more_low, more_high = outer_sums(
                change, j[:, None], i[None, :], near, query_start < key_start, radius, clamp, 1
            )
            low += more_low
            high += more_high

    store_rows(grad_key + row * written_stride + head * each, written_stride, j, dk * scale, tokens, each, block_each)
    store_rows(
        grad_value + row * written_stride + head * each, written_stride, j, dv * rescale, tokens, each, block_each
    )
    if by_key is not None:
        store_outer(grad_by_key, j, low, high, tokens, bias_stride, radius)
        clear_beyond(grad_by_key, j, tokens, bias_stride, radius, block_offsets)
