"""The weights of each query in slots: that of key j is in slot j modulo the number of slots.

A tile of keys starts at a multiple of this number, so that each slot has its place in every tile: weights are loaded
once, and a score near the diagonal costs no address and no load, only the comparison of its offset with ±radius. There
are at least ``2·radius + 1`` slots; a tile has one, two or four times as many keys.
"""

import triton
import triton.language as tl

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
