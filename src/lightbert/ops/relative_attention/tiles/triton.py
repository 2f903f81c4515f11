"""Tiles of scores: the part of relative attention that the forward and the backward kernels share.

A tile is [queries, keys] or [keys, queries]: the functions take the indices of queries and keys as a column and a row
and serve both. Biases are divided by the scale, because scores are not scaled yet:
``exp2(score · scale · LOG2_E)`` is one multiply-add and one exponential.
"""

import triton
import triton.language as tl

from lightbert.ops.hashed_dropout.triton import combine, mix, mix_columns

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(base, stride, token, tokens, each: tl.constexpr, block_each: tl.constexpr, even: tl.constexpr):
    """A tile [tokens, channels] with zeros outside of the row; there is no outside if ``even``."""
    channel = tl.arange(0, block_each)
    place = base + token[:, None] * stride + channel[None, :]
    if even:
        tile = tl.load(place)
    else:
        tile = tl.load(place, mask=(token < tokens)[:, None] & (channel < each)[None, :], other=0.0)
    return tile


@triton.jit
def store_rows(base, stride, token, tile, tokens, each: tl.constexpr, block_each: tl.constexpr):
    """Write the part of a tile [tokens, channels] that lies in the row."""
    channel = tl.arange(0, block_each)
    within = (token < tokens)[:, None] & (channel < each)[None, :]
    tl.store(base + token[:, None] * stride + channel[None, :], tile.to(base.dtype.element_ty), mask=within)


@triton.jit
def band_place(own, other, stride: tl.constexpr, radius: tl.constexpr):
    """The place of the weight of token ``own`` for its offset to ``other``: own·stride + (other - own + R)."""
    # In 64 bits the compiler can move a thread's constant distances between scores into its load instructions.
    return (own.to(tl.int64) * (stride - 1) + radius) + other.to(tl.int64)


@triton.jit
def is_within(own, other, radius: tl.constexpr):
    """Whether the offset is in ±radius, by one unsigned comparison."""
    return (other - (own - radius)).to(tl.uint32) <= 2 * radius


@triton.jit
def bias_per_score(
    weights,
    own,
    other,
    near,
    before,
    tokens,
    scale: tl.constexpr,
    radius: tl.constexpr,
    clamp: tl.constexpr,
    even: tl.constexpr,
):
    """The weight of each token ``own`` for its offset to each token ``other``, divided by ``scale``.

    A tile that is not ``near`` the diagonal has its tokens ``other`` ``before`` its tokens ``own``, or after them.
    """
    low = tl.zeros(own.shape, weights.dtype.element_ty)
    high = low
    if clamp:
        row = weights + own * (2 * radius + 1)
        low = tl.load(row, mask=own < tokens, other=0.0)
        high = tl.load(row + 2 * radius, mask=own < tokens, other=0.0)
    if near:
        within = is_within(own, other, radius)
        if not even:
            within = within & (own < tokens) & (other < tokens)
        beyond = tl.where(own > other, low, high)
        bias = tl.load(weights + band_place(own, other, 2 * radius + 1, radius), mask=within, other=beyond).to(
            tl.float32
        )
    else:
        bias = tl.broadcast_to(tl.where(before, low, high).to(tl.float32), (own + other).shape)
    return bias * (1 / scale)


@triton.jit
def gathered_bias(
    weights,
    own,
    other,
    tokens,
    scale: tl.constexpr,
    radius: tl.constexpr,
    clamp: tl.constexpr,
    block_offsets: tl.constexpr,
):
    """The same in a tile near the diagonal, gathered from all weights of its tokens: without an address per score."""
    axis: tl.constexpr = 1 if own.shape[1] == 1 else 0
    offset = tl.expand_dims(tl.arange(0, block_offsets), 1 - axis)
    # The columns after the weights are zero.
    exists = (own < tokens) & (offset <= 2 * radius)
    all_weights = tl.load(weights + own * (2 * radius + 1) + offset, mask=exists, other=0.0)
    if clamp:
        index = tl.minimum(tl.maximum(other - own + radius, 0), 2 * radius)
    else:
        # Offsets below the band are large unsigned numbers.
        index = tl.minimum((other - own + radius).to(tl.uint32), 2 * radius + 1).to(tl.int32)
    return tl.gather(all_weights.to(tl.float32), index, axis) * (1 / scale)


@triton.jit
def products(rows, columns, of_query, of_key, precision: tl.constexpr):
    """A tile of scores: the products of ``rows`` and ``columns``, plus the biases of queries and keys if given."""
    bias = None
    if of_query is not None and of_key is not None:
        # Without the zeros the compiler spills more registers.
        bias = tl.zeros(of_query.shape, tl.float32) + of_query + of_key
    elif of_query is not None:
        bias = of_query
    elif of_key is not None:
        bias = of_key
    return tl.dot(rows, tl.trans(columns), bias, input_precision=precision)


@triton.jit
def banded_products(
    rows,
    columns,
    by_query,
    by_key,
    query,
    key,
    near,
    key_before,
    tokens,
    scale: tl.constexpr,
    radius: tl.constexpr,
    clamp: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
):
    """The same with a bias loaded for each score near the diagonal; far from it, keys are before queries or after."""
    of_query = None
    of_key = None
    if by_query is not None:
        of_query = bias_per_score(by_query, query, key, near, key_before, tokens, scale, radius, clamp, even)
    if by_key is not None:
        of_key = bias_per_score(by_key, key, query, near, not key_before, tokens, scale, radius, clamp, even)
    return products(rows, columns, of_query, of_key, precision)


@triton.jit
def load_texts(texts, token, tokens, rule: tl.constexpr):
    """The text numbers of some tokens; anything if there are none."""
    text = token
    if rule > 0:
        text = tl.load(texts + token, mask=token < tokens, other=0)
    return text


@triton.jit
def hide(scores, of_query, of_key, key, tokens, rule: tl.constexpr, even: tl.constexpr):
    """Set the scores of keys beyond the row, in the padding or in other texts to -inf, by their text numbers."""
    if not even:
        scores = tl.where(key < tokens, scores, float("-inf"))
    if rule > 1:
        scores = tl.where(of_query == of_key, scores, float("-inf"))
    elif rule > 0:
        scores = tl.where(of_key != 0, scores, float("-inf"))
    return scores


@triton.jit
def kept(seed, pair, query, key, drop: tl.constexpr):
    """Which weights dropout keeps: a function of the seed, the pair of row and head, the query and the key.

    Keys whose indices differ in bit 3 only share the 32 bits of a hash: a thread has the scores of both.
    """
    of_query = mix(mix(query.to(tl.uint32) ^ tl.load(seed).to(tl.uint32)) ^ pair.to(tl.uint32))
    word = combine(of_query, mix_columns(key & ~8))
    # The bits of a key in the upper half, so that no mask is necessary.
    return word << ((~key & 8) * 2).to(tl.uint32) >= drop << 16


@triton.jit
def is_near(query_start, key_start, radius: tl.constexpr, block_queries: tl.constexpr, block_keys: tl.constexpr):
    """Whether a tile contains offsets inside of ±radius."""
    return (key_start - query_start < block_queries + radius) & (query_start - key_start < block_keys + radius)
