"""The gradients of relative attention.

In long rows, there is one kernel per block of queries and one per block of keys. Each program writes the gradients of
its own queries or keys, so that all sums have a fixed order and need no atomics. In short rows, one program has all
queries and keys of a head, and computes every gradient from one softmax. Tiles are [queries, keys], so that few threads
share a sum over keys.

Of the gradients of biases, each weight inside of ±radius is in one score; the two outermost ones may be in many.
"""

import triton
import triton.language as tl

from lightbert.ops.kernels.attention_tiles import (
    LOG2_E,
    band_place,
    banded_products,
    gathered_bias,
    hide,
    is_near,
    is_within,
    kept,
    load_rows,
    load_texts,
    products,
    slots_of,
    store_rows,
)


@triton.jit
def store_inner(grad, change, own, other, near, tokens, stride: tl.constexpr, radius: tl.constexpr):
    """Write the gradients of the weights inside of ±radius, each of which is in exactly one score."""
    if near:
        inner = is_within(own, other, radius - 1) & (own < tokens) & (other < tokens)
        tl.store(grad + band_place(own, other, stride, radius), change.to(grad.dtype.element_ty), mask=inner)


@triton.jit
def outer_sums(change, own, other, near, before, radius: tl.constexpr, clamp: tl.constexpr, axis: tl.constexpr):
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
def store_outer(grad, own, low, high, tokens, stride: tl.constexpr, radius: tl.constexpr):
    """Write the gradients of the outermost weights."""
    row = grad + own * stride
    tl.store(row, low.to(grad.dtype.element_ty), mask=own < tokens)
    tl.store(row + 2 * radius, high.to(grad.dtype.element_ty), mask=own < tokens)


@triton.jit
def clear_beyond(grad, own, tokens, stride: tl.constexpr, radius: tl.constexpr, block_offsets: tl.constexpr):
    """Write zeros for the weights inside of ±radius whose tokens are beyond the row: they are in no score."""
    index = tl.arange(0, block_offsets)[None, :]
    other = own[:, None] + index - radius
    beyond = (index > 0) & (index < 2 * radius) & ((other < 0) | (other >= tokens)) & (own < tokens)[:, None]
    place = grad + own[:, None] * stride + index
    tl.store(place, tl.zeros(beyond.shape, grad.dtype.element_ty), mask=beyond)


@triton.jit
def store_slots(grad, slots, own, tokens, stride: tl.constexpr, radius: tl.constexpr):
    """Write the gradients of the weights inside of ±radius from slots, which are zero for tokens beyond the row."""
    n_slots: tl.constexpr = slots.shape[1]
    index = (tl.arange(0, n_slots)[None, :] - own[:, None] + radius) & (n_slots - 1)
    inner = (index > 0) & (index < 2 * radius) & (own < tokens)[:, None]
    tl.store(grad + own[:, None] * stride + index, slots.to(grad.dtype.element_ty), mask=inner)


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


@triton.jit
def _tile(
    scores,
    v,
    do,
    log_sum,
    i,
    j,
    texts,
    seed,
    pair,
    tokens,
    scale: tl.constexpr,
    rule: tl.constexpr,
    drop: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
):
    """The weights of a tile, before and after dropout (without the factor ``rescale``), and gradients of the latter."""
    text_of_query = load_texts(texts, i[:, None], tokens, rule)
    text_of_key = load_texts(texts, j[None, :], tokens, rule)
    scores = hide(scores, text_of_query, text_of_key, j[None, :], tokens, rule, even)
    weights = tl.exp2(scores * (scale * LOG2_E) - log_sum[:, None])
    change = tl.dot(do, tl.trans(v), input_precision=precision)
    applied = weights
    if drop > 0:
        keep = kept(seed, pair, i[:, None], j[None, :], drop)
        applied = tl.where(keep, weights, 0.0)
        change = tl.where(keep, change, 0.0)
    return weights, applied.to(do.dtype), change


@triton.jit
def _load_queries(
    query,
    grad,
    out,
    log_sums,
    i,
    tokens,
    query_stride,
    grad_stride,
    out_stride,
    each: tl.constexpr,
    block_each: tl.constexpr,
    even: tl.constexpr,
):
    """Queries, the gradients of their results, the logarithms of their sums, and what their scores' gradients share."""
    q = load_rows(query, query_stride, i, tokens, each, block_each, even)
    do = load_rows(grad, grad_stride, i, tokens, each, block_each, even)
    o = load_rows(out, out_stride, i, tokens, each, block_each, even)
    log_sum = tl.load(log_sums + i, mask=i < tokens, other=0.0)
    return q, do, log_sum, tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)


@triton.jit
def plain_attention_row_kernel(
    query,
    key,
    value,
    texts,
    seed,
    out,
    log_sums,
    grad,
    grad_query,
    grad_key,
    grad_value,
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
    rule: tl.constexpr,
    drop: tl.constexpr,
    rescale: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_each: tl.constexpr,
    block: tl.constexpr,
    blocks: tl.constexpr,
):
    """All gradients of one row of one head without biases, in one tile, or in four that are half as wide and high."""
    pair = tl.program_id(0)
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    log_sums += pair.to(tl.int64) * tokens
    if rule > 0:
        texts += row
    query += row * query_stride + head * each
    key += row * key_stride + head * each
    value += row * value_stride + head * each
    out += row * out_stride + head * each
    grad += row * grad_stride + head * each
    grad_query += row * written_stride + head * each
    grad_key += row * written_stride + head * each
    grad_value += row * written_stride + head * each

    i = tl.arange(0, block)
    q, do, log_sum, delta = _load_queries(
        query, grad, out, log_sums, i, tokens, query_stride, grad_stride, out_stride, each, block_each, even
    )
    dq = tl.zeros([block, block_each], tl.float32)
    more_i = i + block
    if blocks > 1:
        more_q, more_do, more_log_sum, more_delta = _load_queries(
            query, grad, out, log_sums, more_i, tokens, query_stride, grad_stride, out_stride, each, block_each, even
        )
        more_dq = tl.zeros([block, block_each], tl.float32)
    for key_start in tl.static_range(0, blocks * block, block):
        j = key_start + tl.arange(0, block)
        k = load_rows(key, key_stride, j, tokens, each, block_each, even)
        v = load_rows(value, value_stride, j, tokens, each, block_each, even)
        scores = tl.dot(q, tl.trans(k), input_precision=precision)
        weights, applied, change = _tile(
            *(scores, v, do, log_sum, i, j, texts, seed, pair),
            *(tokens, scale, rule, drop, even, precision),
        )
        change = (weights * (change * rescale - delta[:, None])).to(k.dtype)
        dv = tl.dot(tl.trans(applied), do, input_precision=precision)
        dk = tl.dot(tl.trans(change), q, input_precision=precision)
        dq = tl.dot(change, k, dq, input_precision=precision)
        if blocks > 1:
            scores = tl.dot(more_q, tl.trans(k), input_precision=precision)
            weights, applied, change = _tile(
                *(scores, v, more_do, more_log_sum, more_i, j, texts, seed, pair),
                *(tokens, scale, rule, drop, even, precision),
            )
            change = (weights * (change * rescale - more_delta[:, None])).to(k.dtype)
            dv = tl.dot(tl.trans(applied), more_do, dv, input_precision=precision)
            dk = tl.dot(tl.trans(change), more_q, dk, input_precision=precision)
            more_dq = tl.dot(change, k, more_dq, input_precision=precision)
        store_rows(grad_key, written_stride, j, dk * scale, tokens, each, block_each)
        store_rows(grad_value, written_stride, j, dv * rescale, tokens, each, block_each)
    store_rows(grad_query, written_stride, i, dq * scale, tokens, each, block_each)
    if blocks > 1:
        store_rows(grad_query, written_stride, more_i, more_dq * scale, tokens, each, block_each)


@triton.jit
def biased_attention_row_kernel(
    query,
    key,
    value,
    by_query,
    by_key,
    texts,
    seed,
    log_sums,
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
    block: tl.constexpr,
    block_offsets: tl.constexpr,
):
    """All gradients of one row of one head and of its biases, in one tile."""
    pair = tl.program_id(0)
    head = pair % n_heads
    row = (pair // n_heads).to(tl.int64) * tokens
    first_bias = pair.to(tl.int64) * tokens * (2 * radius + 1)
    if by_query is not None:
        by_query += first_bias
    if by_key is not None:
        by_key += first_bias
    if rule > 0:
        texts += row

    i = tl.arange(0, block)
    q = load_rows(query + row * query_stride + head * each, query_stride, i, tokens, each, block_each, even)
    do = load_rows(grad + row * grad_stride + head * each, grad_stride, i, tokens, each, block_each, even)
    log_sum = tl.load(log_sums + pair.to(tl.int64) * tokens + i, mask=i < tokens, other=0.0)
    k = load_rows(key + row * key_stride + head * each, key_stride, i, tokens, each, block_each, even)
    v = load_rows(value + row * value_stride + head * each, value_stride, i, tokens, each, block_each, even)
    if block_offsets <= block:
        of_query = None
        of_key = None
        if by_query is not None:
            of_query = gathered_bias(by_query, i[:, None], i[None, :], tokens, scale, radius, clamp, block_offsets)
        if by_key is not None:
            of_key = gathered_bias(by_key, i[None, :], i[:, None], tokens, scale, radius, clamp, block_offsets)
        scores = products(q, k, of_query, of_key, precision)
    else:
        # Gathered from 256 weights, one bias of a row was wrong (Triton 3.6).
        scores = banded_products(
            *(q, k, by_query, by_key, i[:, None], i[None, :], True, False),
            *(tokens, scale, radius, clamp, even, precision),
        )
    weights, applied, change = _tile(
        *(scores, v, do, log_sum, i, i, texts, seed, pair),
        *(tokens, scale, rule, drop, even, precision),
    )
    delta = tl.sum(weights * change, axis=1) * rescale
    change = weights * (change * rescale - delta[:, None])
    dv = tl.dot(tl.trans(applied), do, input_precision=precision) * rescale
    dk = tl.dot(tl.trans(change.to(q.dtype)), q, input_precision=precision) * scale
    dq = tl.dot(change.to(k.dtype), k, input_precision=precision) * scale
    written = row * written_stride + head * each
    first_gradient = (pair // n_heads).to(tl.int64) * bias_row_stride + head * bias_head_stride
    store_rows(grad_query + written, written_stride, i, dq, tokens, each, block_each)
    if by_query is not None:
        grad_by_query += first_gradient
        if block_offsets <= block:
            store_slots(grad_by_query, slots_of(change, radius, block_offsets), i, tokens, bias_stride, radius)
        else:
            store_inner(grad_by_query, change, i[:, None], i[None, :], True, tokens, bias_stride, radius)
            clear_beyond(grad_by_query, i, tokens, bias_stride, radius, block_offsets)
        low, high = outer_sums(change, i[:, None], i[None, :], True, False, radius, clamp, 1)
        store_outer(grad_by_query, i, low, high, tokens, bias_stride, radius)
    if by_key is not None:
        grad_by_key += first_gradient
        store_inner(grad_by_key, change, i[None, :], i[:, None], True, tokens, bias_stride, radius)
        low, high = outer_sums(change, i[None, :], i[:, None], True, False, radius, clamp, 0)
        store_outer(grad_by_key, i, low, high, tokens, bias_stride, radius)
        clear_beyond(grad_by_key, i, tokens, bias_stride, radius, block_offsets)
    store_rows(grad_key + written, written_stride, i, dk, tokens, each, block_each)
    store_rows(grad_value + written, written_stride, i, dv, tokens, each, block_each)
