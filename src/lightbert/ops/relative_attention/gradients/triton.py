"""The gradients of relative attention: one kernel per block of queries, one per block of keys.

Each program writes the gradients of its own queries or keys, so that all sums have a fixed order and need no atomics.
"""

import triton
import triton.language as tl

from lightbert.ops.relative_attention.tiles.triton import (
    LOG2_E,
    band_place,
    hide,
    is_near,
    is_within,
    kept,
    load_rows,
    products,
    store_rows,
)


@triton.jit
def _store_inner(grad, change, own, other, near, tokens, radius: tl.constexpr):
    """Write the gradients of the weights inside of ±radius, each of which is in exactly one score."""
    if near:
        inner = is_within(own, other, radius - 1) & (own < tokens) & (other < tokens)
        tl.store(grad + band_place(own, other, radius), change.to(grad.dtype.element_ty), mask=inner)


@triton.jit
def _outer(change, own, other, near, before, radius: tl.constexpr, clamp: tl.constexpr, axis: tl.constexpr):
    """The gradients of the two outermost weights; with ``clamp`` they are in many scores.

    A tile that is not near the diagonal lies ``before`` the tokens ``own`` or after them.
    """
    offset = other - own
    if near:
        if clamp:
            below, above = offset <= -radius, offset >= radius
        else:
            below, above = offset == -radius, offset == radius
        low = tl.sum(tl.where(below, change, 0.0), axis=axis)
        high = tl.sum(tl.where(above, change, 0.0), axis=axis)
    else:
        total = tl.sum(change, axis=axis) * clamp
        low = tl.where(before, total, 0.0)
        high = tl.where(before, 0.0, total)
    return low, high


@triton.jit
def _store_outer(grad, own, low, high, tokens, radius: tl.constexpr, block_offsets: tl.constexpr):
    """Write the gradients of the outermost weights, and zeros for offsets beyond the row."""
    real = own < tokens
    row = grad + own * (2 * radius + 1)
    tl.store(row, low.to(grad.dtype.element_ty), mask=real)
    tl.store(row + 2 * radius, high.to(grad.dtype.element_ty), mask=real)
    index = tl.arange(0, block_offsets)[None, :]
    source = own[:, None] + index - radius
    beyond = (index > 0) & (index < 2 * radius) & ((source < 0) | (source >= tokens)) & real[:, None]
    tl.store(row[:, None] + index, tl.zeros(beyond.shape, grad.dtype.element_ty), mask=beyond)


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
        grad_by_query += pair.to(tl.int64) * tokens * (2 * radius + 1)
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
        scores = products(
            *(q, k, by_query, by_key, i[:, None], j[None, :], near, key_before),
            *(tokens, scale, radius, clamp, even, precision, block_offsets),
            gathered=False,
        )
        scores = hide(scores, texts, i[:, None], j[None, :], tokens, rule, even)
        weights = tl.exp2(scores * (scale * LOG2_E) - log_sum[:, None])
        change = tl.dot(do, tl.trans(v), input_precision=precision)
        if drop > 0:
            change = tl.where(kept(seed, pair, i[:, None], j[None, :], drop), change, 0.0)
        change = weights * (change * rescale - delta[:, None])
        dq = tl.dot(change.to(k.dtype), k, dq, input_precision=precision)
        if by_query is not None:
            _store_inner(grad_by_query, change, i[:, None], j[None, :], near, tokens, radius)
            more_low, more_high = _outer(
                change, i[:, None], j[None, :], near, key_start < query_start, radius, clamp, 1
            )
            low += more_low
            high += more_high

    store_rows(grad_query + row * written_stride + head * each, written_stride, i, dq * scale, tokens, each, block_each)
    if by_query is not None:
        _store_outer(grad_by_query, i, low, high, tokens, radius, block_offsets)


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
    grad_query,
    grad_key,
    grad_value,
    grad_by_query,
    grad_by_key,
    tokens,
    query_stride,
    key_stride,
    value_stride,
    grad_stride,
    written_stride,
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
    whole: tl.constexpr,
):
    """The gradients of one block of keys and values and of their weights.

    A block that contains all keys of a row (``whole``) has all that the gradients of the queries need, too.
    """
    tiles = tl.cdiv(tokens, block_keys)
    pair = tl.program_id(0) // tiles
    key_start = (tl.program_id(0) % tiles) * block_keys
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    log_sums += pair.to(tl.int64) * tokens
    if by_query is not None:
        by_query += pair.to(tl.int64) * tokens * (2 * radius + 1)
    if by_key is not None:
        by_key += pair.to(tl.int64) * tokens * (2 * radius + 1)
        grad_by_key += pair.to(tl.int64) * tokens * (2 * radius + 1)
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
        # A constant, so that only the code for tiles near the diagonal is compiled.
        near = True
        if not whole:
            near = is_near(query_start, key_start, radius, block_queries, block_keys)
        key_before = key_start < query_start
        scores = products(
            *(k, q, by_query, by_key, i[None, :], j[:, None], near, key_before),
            *(tokens, scale, radius, clamp, even, precision, block_offsets),
            gathered=whole,
        )
        scores = hide(scores, texts, i[None, :], j[:, None], tokens, rule, even)
        weights = tl.exp2(scores * (scale * LOG2_E) - log_sum[None, :])
        change = tl.dot(v, tl.trans(do), input_precision=precision)
        applied = weights
        if drop > 0:
            keep = kept(seed, pair, i[None, :], j[:, None], drop)
            applied = tl.where(keep, weights, 0.0)
            change = tl.where(keep, change, 0.0)
        dv = tl.dot(applied.to(do.dtype), do, dv, input_precision=precision)
        if whole:
            delta = tl.sum(weights * change, axis=0) * rescale
        else:
            delta = tl.load(shared + pair.to(tl.int64) * tokens + i, mask=i < tokens, other=0.0)
        change = weights * (change * rescale - delta[None, :])
        dk = tl.dot(change.to(q.dtype), q, dk, input_precision=precision)
        if by_key is not None:
            _store_inner(grad_by_key, change, j[:, None], i[None, :], near, tokens, radius)
            more_low, more_high = _outer(
                change, j[:, None], i[None, :], near, query_start < key_start, radius, clamp, 1
            )
            low += more_low
            high += more_high
        if whole:
            if block_queries < 64:
                dq = tl.trans(tl.dot(tl.trans(k), change.to(k.dtype), input_precision=precision)) * scale
            else:
                dq = tl.dot(tl.trans(change.to(k.dtype)), k, input_precision=precision) * scale
            store_rows(grad_query + row * written_stride + head * each, written_stride, i, dq, tokens, each, block_each)
            if by_query is not None:
                target = grad_by_query + pair.to(tl.int64) * tokens * (2 * radius + 1)
                _store_inner(target, change, i[None, :], j[:, None], near, tokens, radius)
                of_low, of_high = _outer(
                    change, i[None, :], j[:, None], near, key_start < query_start, radius, clamp, 0
                )
                _store_outer(target, i, of_low, of_high, tokens, radius, block_offsets)

    store_rows(grad_key + row * written_stride + head * each, written_stride, j, dk * scale, tokens, each, block_each)
    store_rows(
        grad_value + row * written_stride + head * each, written_stride, j, dv * rescale, tokens, each, block_each
    )
    if by_key is not None:
        _store_outer(grad_by_key, j, low, high, tokens, radius, block_offsets)
