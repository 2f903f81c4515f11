"""The convolution heads on a GPU: the kernel layer, the softmax of its logits and the convolution in one kernel.

A program computes some consecutive tokens of a row, all heads. Its logits and weights go through memory, for the
backward pass and to get from one layout to the next, and stay in the cache meanwhile. The convolution is a batch of
products of small bands of weights with values, see `lightbert.ops.dynamic_conv`.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.dynamic_conv.triton import OWN, softmax_of_taps
from lightbert.ops.flat_tokens import flat, text_rule
from lightbert.ops.masked_tiles.triton import load
from lightbert.ops.mixed_heads.triton import channels_of_tile, keys, shifts
from lightbert.ops.walks.triton import same_text


class Sizes(NamedTuple):
    """The size of a program; it has all outputs of the kernel layer."""

    tokens: int
    """The maximum."""
    channels: int
    """The maximum of a tile."""
    warps: int
    registers: int | None
    """The limit per thread."""
    stages: int
    """With 2 or more, loads of the next tiles run while a tile is multiplied."""


_SIZES, _LARGE_SIZES = Sizes(64, 64, 4, 128, 2), Sizes(32, 64, 4, None, 1)
"""The second is for float32 and layers of many outputs, which need more registers and memory."""
_FEW_OUTPUTS = 128
_FEWEST_TOKENS = 32
"""Of a program: none spans two rows, so that those of short rows are small."""


@triton.jit(do_not_specialize=["row_tokens"])
def _span_convolution_kernel(
    query,
    span_key,
    span_bias,
    weight,
    bias,
    values,
    texts,
    out,
    kept,
    row_tokens,
    query_stride: tl.constexpr,
    key_stride: tl.constexpr,
    value_stride: tl.constexpr,
    out_stride: tl.constexpr,
    width: tl.constexpr,
    n_heads: tl.constexpr,
    taps: tl.constexpr,
    padded: tl.constexpr,
    rule: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
    block_outputs: tl.constexpr,
    block_heads: tl.constexpr,
    block_taps: tl.constexpr,
    block_each: tl.constexpr,
    near_tokens: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    outputs: tl.constexpr = n_heads * padded
    each: tl.constexpr = width // n_heads
    tiles = tl.cdiv(row_tokens, block_tokens)
    start = (tl.program_id(0) % tiles) * block_tokens
    first = (tl.program_id(0) // tiles).to(tl.int64) * row_tokens
    values += first * value_stride
    out += first * out_stride
    kept += first * outputs

    # The logits, where the weights will be.
    own = start + tl.arange(0, block_tokens)[:, None]
    here = (own < row_tokens) | even
    output = tl.arange(0, block_outputs)
    total = tl.zeros((block_tokens, block_outputs), tl.float32)
    for part in tl.range(0, width, block_channels, num_stages=stages):
        channel = part + tl.arange(0, block_channels)[None, :]
        within = here & (channel < width)
        q = load(query, (first + own) * query_stride + channel, within, even)
        shift = shifts(span_bias, channel, width)
        k = keys(span_key, (first + own) * key_stride + channel, within, even, shift)
        in_weight = (output < outputs)[:, None] & (channel < width)
        w = tl.load(weight + output[:, None] * width + channel, mask=in_weight, other=0.0)
        total = tl.dot((q * k).to(w.dtype), tl.trans(w), total, input_precision=precision)
    total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    in_layer = here & (output < outputs)[None, :]
    tl.store(kept + own * outputs + output[None, :], total.to(kept.dtype.element_ty), mask=in_layer)
    tl.debug_barrier()

    # The weights of all heads [tokens, heads, taps]; the sign says whether a tap reads a token of the same text.
    token = (start + tl.arange(0, block_tokens))[:, None, None]
    head, tap = tl.arange(0, block_heads)[None, :, None], tl.arange(0, block_taps)[None, None, :]
    places = token * outputs + head * padded + tap
    written = ((token < row_tokens) | even) & (head < n_heads) & (tap < padded)
    scores = tl.load(kept + places, mask=written, other=0.0).to(tl.float32)
    weights, lack = softmax_of_taps(scores, tap, taps, kept.dtype.element_ty, 2)
    if rule > 0:
        source = token + tap - radius
        is_source = (source >= 0) & (source < row_tokens) & (tap < taps)
        text = tl.load(texts + first + source, mask=is_source, other=0)
        visible = text != 0
        if rule > 1:
            visible = same_text(text, tl.load(texts + first + token, mask=token < row_tokens, other=0))
        weights = tl.where(visible, weights, -weights)
    weights = tl.where(tap == taps, lack, weights)
    tl.store(kept + places, weights.to(kept.dtype.element_ty), mask=written)
    tl.debug_barrier()

    # Bands [bands, own, near] times values [bands, near, channels].
    bands: tl.constexpr = block_tokens // OWN
    begin = start + tl.arange(0, bands)[:, None, None] * OWN
    own_index, near_index = tl.arange(0, OWN)[None, :, None], tl.arange(0, near_tokens)[None, None, :]
    band_token, band_tap = begin + own_index, near_index - own_index
    band_here = (band_token < row_tokens) | even
    in_band = (band_tap >= 0) & (band_tap < taps) & band_here
    near_index = tl.arange(0, near_tokens)[None, :, None]
    near = begin + near_index - radius
    near_here = (near >= 0) & (near < row_tokens) & (near_index < OWN + 2 * radius)
    if rule > 0:
        near_here = near_here & (tl.load(texts + first + near, mask=near_here, other=0) != 0)
    of_head = tl.arange(0, block_each)[None, None, :]
    for number in tl.range(n_heads, num_stages=stages):
        place = near * value_stride + number * each + of_head
        near_values = tl.load(values + place, mask=near_here & (of_head < each), other=0.0)
        band = tl.load(kept + band_token * outputs + number * padded + band_tap, mask=in_band, other=0.0)
        if rule > 1:
            band = tl.where(band > 0, band, 0.0)
        mixed = tl.dot(band.to(near_values.dtype), near_values, input_precision=precision)
        target = out + band_token * out_stride + number * each + of_head
        tl.store(target, mixed.to(out.dtype.element_ty), mask=band_here & (of_head < each))


def _sizes(weight: Tensor) -> Sizes:
    return _LARGE_SIZES if weight.dtype is torch.float32 or len(weight) > _FEW_OUTPUTS else _SIZES


def convolve(
    query: Tensor,
    span_key: Tensor,
    span_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    values: Tensor,
    texts: Tensor | None,
    n_heads: int,
    taps: int,
    out: Tensor,
    *,
    sizes: Sizes | None = None,
) -> Tensor:
    """Write the convolution of ``values`` to ``out``, both [B, T, a]; return the signed weights [B, T, H, P].

    Their logits are a linear layer of query · (span_key + span_bias), with ``weight`` [H·P, a] and ``bias`` [H·P].
    """
    query, span_key, values, weight = flat(query), flat(span_key), flat(values), weight.contiguous()
    texts, rule = text_rule(texts)
    (batch, tokens, width), padded = query.shape, len(weight) // n_heads
    kept = torch.empty((batch, tokens, n_heads, padded), dtype=query.dtype, device=query.device)
    if kept.numel():
        sizes = sizes or _sizes(weight)
        channels = channels_of_tile(width, sizes.channels)
        block_tokens = min(sizes.tokens, max(_FEWEST_TOKENS, triton.next_power_of_2(tokens)))
        _span_convolution_kernel[(batch * triton.cdiv(tokens, block_tokens),)](
            *(query, span_key, span_bias.contiguous(), weight, bias.contiguous(), values, texts, out, kept, tokens),
            query_stride=query.stride(1),
            key_stride=span_key.stride(1),
            value_stride=values.stride(1),
            out_stride=out.stride(1),
            width=width,
            n_heads=n_heads,
            taps=taps,
            padded=padded,
            rule=rule,
            even=tokens % block_tokens == 0 and width % channels == 0,
            precision="ieee" if query.dtype is torch.float32 else "tf32",
            stages=sizes.stages,
            block_tokens=block_tokens,
            block_channels=channels,
            block_outputs=max(16, triton.next_power_of_2(len(weight))),
            block_heads=triton.next_power_of_2(n_heads),
            block_taps=triton.next_power_of_2(padded),
            block_each=max(16, triton.next_power_of_2(width // n_heads)),
            near_tokens=triton.next_power_of_2(OWN.value + padded - 1),
            num_warps=sizes.warps,
            maxnreg=sizes.registers,
            enable_fp_fusion=True,
        )
    return kept
