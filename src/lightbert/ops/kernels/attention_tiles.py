"""Tiles of scores and of biases: the part of relative attention that the forward and the backward kernels share.

A tile is [queries, keys] or [keys, queries]: the functions take the indices of queries and keys as a column and a row
and serve both. Biases are divided by the scale, because scores are not scaled yet:
``exp2(score · scale · LOG2_E)`` is one multiply-add and one exponential.

The weights of each query are in slots: that of key j in slot j modulo the number of slots. A tile of keys starts at a
multiple of this number, so that each slot has its place in every tile: weights are loaded once, and a score near the
diagonal costs no address and no load, only the comparison of its offset with ±radius. There are at least
``2·radius + 1`` slots; a tile has one, two or four times as many keys.
"""

import triton
import triton.language as tl

from lightbert.ops.kernels.tiles import combine, mix, mix_columns

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
    """The document ids of some tokens; anything if there are none."""
    text = token
    if rule > 0:
        text = tl.load(texts + token, mask=token < tokens, other=0)
    return text


@triton.jit
def hide(scores, of_query, of_key, key, tokens, rule: tl.constexpr, even: tl.constexpr):
    """Set the scores of keys beyond the row, in the padding or in other texts to -inf, by their document ids."""
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


ANY = tl.constexpr(1 << 30)
"""A bound of offsets that none reaches."""


@triton.jit
def load_slots(
    weights, own, tokens, scale: tl.constexpr, radius: tl.constexpr, clamp: tl.constexpr, n_slots: tl.constexpr
):
    """The slots [queries, slots] of the queries ``own`` [queries, 1], and their weights beyond the band on both sides.

    All are divided by ``scale``. Slots without a key of the band have any weight.
    """
    row = weights + tl.minimum(own, tokens - 1) * (2 * radius + 1)
    offset = (tl.arange(0, n_slots)[None, :] - own + radius) & (n_slots - 1)
    slots = tl.load(row + tl.minimum(offset, 2 * radius)).to(tl.float32) * (1 / scale)
    low = tl.zeros(own.shape, tl.float32)
    high = low
    if clamp:
        low = tl.load(row).to(tl.float32) * (1 / scale)
        high = tl.load(row + 2 * radius).to(tl.float32) * (1 / scale)
    return slots, low, high


@triton.jit
def _part(slots, low, high, offset, least: tl.constexpr, most: tl.constexpr, radius: tl.constexpr):
    """The biases of as many keys as there are slots; their offsets are between ``least`` and ``most``."""
    if most < -radius:
        bias = tl.broadcast_to(low, slots.shape)
    elif least > radius:
        bias = tl.broadcast_to(high, slots.shape)
    else:
        bias = slots
        if most > radius:
            bias = tl.where(offset > radius, high, bias)
        if least < -radius:
            bias = tl.where(offset < -radius, low, bias)
    return bias


@triton.jit
def _beside(left, right):
    """One tile with the columns of two; each thread has them already."""
    joined = tl.permute(tl.join(left, right), (0, 2, 1))
    return tl.reshape(joined, (left.shape[0], 2 * left.shape[1]))


@triton.jit
def _biases(
    slots,
    low,
    high,
    offset,
    least: tl.constexpr,
    most: tl.constexpr,
    step: tl.constexpr,
    radius: tl.constexpr,
    keys: tl.constexpr,
):
    """A tile of biases [queries, keys] from parts as wide as the slots; ``offset`` is that of the first part.

    The bounds of offsets grow by ``step`` from each part to the next.
    """
    n: tl.constexpr = slots.shape[1]
    bias = _part(slots, low, high, offset, least, most, radius)
    if keys > n:
        bias = _beside(bias, _part(slots, low, high, offset + n, least + step, most + step, radius))
    if keys > 2 * n:
        third = _part(slots, low, high, offset + 2 * n, least + 2 * step, most + 2 * step, radius)
        fourth = _part(slots, low, high, offset + 3 * n, least + 3 * step, most + 3 * step, radius)
        bias = _beside(bias, _beside(third, fourth))
    return bias


@triton.jit
def fixed_tile(slots, low, high, query_start: tl.constexpr, radius: tl.constexpr, keys: tl.constexpr):
    """The biases of a block of queries for the first keys of its row: the compiler knows which parts touch the band."""
    queries: tl.constexpr = slots.shape[0]
    n: tl.constexpr = slots.shape[1]
    own = query_start + tl.arange(0, queries)[:, None]
    offset = tl.arange(0, n)[None, :] - own
    return _biases(slots, low, high, offset, 1 - query_start - queries, n - 1 - query_start, n, radius, keys)


@triton.jit
def any_tile(slots, low, high, own, query_start, key_start, radius: tl.constexpr, keys: tl.constexpr):
    """The biases of a block of queries for any tile of keys: few comparisons for tiles that the band only touches."""
    queries: tl.constexpr = slots.shape[0]
    offset = key_start + tl.arange(0, slots.shape[1])[None, :] - own
    apart = key_start - query_start
    if (apart < queries + radius) & (query_start - key_start < keys + radius):
        if apart >= queries:
            bias = _biases(slots, low, high, offset, 1, ANY, 0, radius, keys)
        elif apart <= -keys:
            bias = _biases(slots, low, high, offset, -ANY, -1, 0, radius, keys)
        else:
            bias = _biases(slots, low, high, offset, -ANY, ANY, 0, radius, keys)
    else:
        bias = tl.broadcast_to(tl.where(key_start < query_start, low, high), (queries, keys))
    return bias


@triton.jit
def _halves(tile):
    """Two tiles with the left and the right half of the columns of one."""
    parts = tl.reshape(tile, (tile.shape[0], 2, tile.shape[1] // 2))
    return tl.split(tl.permute(parts, (0, 2, 1)))


@triton.jit
def _take(slots, tile, offset, radius: tl.constexpr):
    """The slots, with those of the keys of a tile that are in the band."""
    return tl.where((offset + radius).to(tl.uint32) <= 2 * radius, tile, slots)


@triton.jit
def slots_of(tile, radius: tl.constexpr, n_slots: tl.constexpr):
    """The slots [queries, slots] of a tile that has all queries and keys of a row; zero for keys beyond the row."""
    queries: tl.constexpr = tile.shape[0]
    keys: tl.constexpr = tile.shape[1]
    offset = tl.arange(0, n_slots)[None, :] - tl.arange(0, queries)[:, None]
    slots = tl.zeros((queries, n_slots), tl.float32)
    if keys == n_slots:
        slots = _take(slots, tile, offset, radius)
    else:
        left, right = _halves(tile)
        if keys == 2 * n_slots:
            slots = _take(slots, left, offset, radius)
            slots = _take(slots, right, offset + n_slots, radius)
        else:
            first, second = _halves(left)
            third, fourth = _halves(right)
            slots = _take(slots, first, offset, radius)
            slots = _take(slots, second, offset + n_slots, radius)
            slots = _take(slots, third, offset + 2 * n_slots, radius)
            slots = _take(slots, fourth, offset + 3 * n_slots, radius)
    return slots
