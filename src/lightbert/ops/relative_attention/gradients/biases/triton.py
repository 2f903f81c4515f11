"""The gradients of biases: each weight inside of ±radius is in one score, the two outermost ones may be in many."""

import triton
import triton.language as tl

from lightbert.ops.relative_attention.tiles.triton import band_place, is_within


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
