"""Depthwise convolution on a GPU: each thread processes consecutive tokens of a row and keeps the window in registers.

A program takes ``streams`` stretches of ``length`` tokens and a block of channels. It reads every token of a stretch
once, and the K//2 tokens before and after it. What lies beyond the row or in the padding is loaded as zero; only packed
rows compare the text numbers tap by tap. The backward pass computes all gradients from one window over the output's
gradient. The gradient of the weight is summed in two stages, per program and then over programs, in an order that never
changes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat, text_rule

FORWARD = {"streams": 8, "block_channels": 128, "length": 32, "warps": 4}
BACKWARD = {"streams": 4, "block_channels": 128, "length": 32, "warps": 4}
UNROLL = 8


@triton.jit
def _of_text(window, text_window, text, taps: tl.constexpr):
    """The window's tiles, zero where they belong to another text."""
    seen = ()
    for tap in tl.static_range(taps):
        seen = seen + (tl.where((text_window[tap] == text)[:, None], window[tap], 0.0),)
    return seen


@triton.jit
def _forward_kernel(
    x,
    weight,
    bias,
    texts,
    out,
    n_rows,
    row_tokens,
    channels,
    x_stride,
    out_stride,
    taps: tl.constexpr,
    rule: tl.constexpr,
    has_bias: tl.constexpr,
    streams: tl.constexpr,
    block_channels: tl.constexpr,
    length: tl.constexpr,
    unroll: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    exists = channel < channels
    stream = (tl.program_id(0) // parts) * streams + tl.arange(0, streams)
    stretches = tl.cdiv(row_tokens, length)
    start = (stream % stretches) * length
    first = (stream // stretches).to(tl.int64) * row_tokens + start
    in_batch = stream < n_rows * stretches
    source = x + (first * x_stride)[:, None] + channel[None, :]
    target = out + (first * out_stride)[:, None] + channel[None, :]

    factors = ()
    for tap in tl.static_range(taps):
        factor = tl.load(weight + channel * taps + tap, mask=exists, other=0.0)
        factors = factors + (factor.to(tl.float32)[None, :],)
    offset = tl.zeros((block_channels,), tl.float32)
    if has_bias:
        offset += tl.load(bias + channel, mask=exists, other=0.0).to(tl.float32)

    window, text_window = (), ()
    for place in tl.static_range(taps - 1):
        there = in_batch & (start + place >= radius) & (start + place - radius < row_tokens)
        if rule > 0:
            text = tl.load(texts + first + place - radius, mask=there, other=0)
            there = there & (text != 0)
            text_window = text_window + (text,)
        read = tl.load(source + (place - radius) * x_stride, mask=there[:, None] & exists[None, :], other=0.0)
        window = window + (read.to(tl.float32),)

    for step in range(0, length, unroll):
        for ahead in tl.static_range(unroll):
            token = step + ahead
            there = in_batch & (start + token + radius < row_tokens)
            if rule > 0:
                text = tl.load(texts + first + token + radius, mask=there, other=0)
                there = there & (text != 0)
                text_window = text_window + (text,)
            read = tl.load(source + (token + radius) * x_stride, mask=there[:, None] & exists[None, :], other=0.0)
            window = window + (read.to(tl.float32),)
            seen = window
            if rule > 1:
                seen = _of_text(window, text_window, text_window[radius], taps)
            mixed = offset[None, :]
            for tap in tl.static_range(taps):
                mixed += seen[tap] * factors[tap]
            inside = in_batch & (start + token < row_tokens)
            to_store = inside[:, None] & exists[None, :]
            tl.store(target + token * out_stride, mixed.to(out.dtype.element_ty), mask=to_store)
            window = window[1:]
            if rule > 0:
                text_window = text_window[1:]


@triton.jit
def _backward_kernel(
    grad,
    x,
    weight,
    texts,
    grad_x,
    partial,
    n_rows,
    row_tokens,
    channels,
    grad_stride,
    x_stride,
    out_stride,
    taps: tl.constexpr,
    rule: tl.constexpr,
    streams: tl.constexpr,
    block_channels: tl.constexpr,
    length: tl.constexpr,
    unroll: tl.constexpr,
):
    """Write the gradient of x, and this program's sums for each tap's weight and the bias: [taps + 1, channels].

    Token s was read by tap j of token s - (j - radius), so the window is walked with the taps in reverse order.
    """
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    program = tl.program_id(0) // parts
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    exists = channel < channels
    stream = program * streams + tl.arange(0, streams)
    stretches = tl.cdiv(row_tokens, length)
    start = (stream % stretches) * length
    first = (stream // stretches).to(tl.int64) * row_tokens + start
    in_batch = stream < n_rows * stretches
    change = grad + (first * grad_stride)[:, None] + channel[None, :]
    source = x + (first * x_stride)[:, None] + channel[None, :]
    target = grad_x + (first * out_stride)[:, None] + channel[None, :]

    factors, sums = (), ()
    for place in tl.static_range(taps):
        factor = tl.load(weight + channel * taps + (taps - 1 - place), mask=exists, other=0.0)
        factors = factors + (factor.to(tl.float32)[None, :],)
        sums = sums + (tl.zeros((streams, block_channels), tl.float32),)
    of_bias = tl.zeros((streams, block_channels), tl.float32)

    window, text_window = (), ()
    for place in tl.static_range(taps - 1):
        there = in_batch & (start + place >= radius) & (start + place - radius < row_tokens)
        if rule > 1:
            text_window = text_window + (tl.load(texts + first + place - radius, mask=there, other=0),)
        read = tl.load(change + (place - radius) * grad_stride, mask=there[:, None] & exists[None, :], other=0.0)
        window = window + (read.to(tl.float32),)

    for step in range(0, length, unroll):
        for ahead in tl.static_range(unroll):
            token = step + ahead
            there = in_batch & (start + token + radius < row_tokens)
            inside = in_batch & (start + token < row_tokens)
            is_read = inside
            read = tl.load(change + (token + radius) * grad_stride, mask=there[:, None] & exists[None, :], other=0.0)
            window = window + (read.to(tl.float32),)
            seen = window
            if rule == 1:
                is_read = inside & (tl.load(texts + first + token, mask=inside, other=0) != 0)
            if rule > 1:
                text_window = text_window + (tl.load(texts + first + token + radius, mask=there, other=0),)
                is_read = inside & (text_window[radius] != 0)
                seen = _of_text(window, text_window, text_window[radius], taps)
            value = tl.load(source + token * x_stride, mask=is_read[:, None] & exists[None, :], other=0.0)
            value = value.to(tl.float32)

            of_x = tl.zeros((streams, block_channels), tl.float32)
            added = ()
            for place in tl.static_range(taps):
                of_x += seen[place] * factors[place]
                added = added + (sums[place] + seen[place] * value,)
            sums = added
            of_x = tl.where(is_read[:, None], of_x, 0.0)
            to_store = inside[:, None] & exists[None, :]
            tl.store(target + token * out_stride, of_x.to(grad_x.dtype.element_ty), mask=to_store)
            of_bias += tl.where(inside[:, None], window[radius], 0.0)
            window = window[1:]
            if rule > 1:
                text_window = text_window[1:]

    result = partial + program.to(tl.int64) * (taps + 1) * channels + channel
    for place in tl.static_range(taps):
        tl.store(result + (taps - 1 - place) * channels, tl.sum(sums[place], axis=0), mask=exists)
    tl.store(result + taps * channels, tl.sum(of_bias, axis=0), mask=exists)


def _streams(blocks: dict[str, int], taps: int) -> int:
    """A thread's registers hold the windows of its channels: with more taps it takes half as many of them."""
    return blocks["streams"] if taps <= 9 else blocks["streams"] // 2


def _programs(batch: int, tokens: int, streams: int, length: int) -> int:
    return int(triton.cdiv(batch * triton.cdiv(tokens, length), streams))


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    texts: Tensor | None,
    *,
    streams: int | None = None,
    block_channels: int = FORWARD["block_channels"],
    length: int = FORWARD["length"],
    warps: int = FORWARD["warps"],
) -> Tensor:
    """The convolution, by blocks of a chosen size."""
    streams = streams or _streams(FORWARD, weight.shape[1])
    x, weight = flat(x), weight.contiguous()
    texts, rule = text_rule(texts)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        batch, tokens, channels = x.shape
        _forward_kernel[(_programs(batch, tokens, streams, length) * triton.cdiv(channels, block_channels),)](
            x,
            weight,
            None if bias is None else bias.contiguous(),
            texts,
            out,
            batch,
            tokens,
            channels,
            x.stride(1),
            channels,
            taps=weight.shape[1],
            rule=rule,
            has_bias=bias is not None,
            streams=streams,
            block_channels=block_channels,
            length=length,
            unroll=UNROLL,
            num_warps=warps,
            enable_fp_fusion=True,
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    texts: Tensor | None,
    *,
    streams: int | None = None,
    block_channels: int = BACKWARD["block_channels"],
    length: int = BACKWARD["length"],
    warps: int = BACKWARD["warps"],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias, by blocks of a chosen size."""
    streams = streams or _streams(BACKWARD, weight.shape[1])
    grad, x, weight = flat(grad), flat(x), weight.contiguous()
    texts, rule = text_rule(texts)
    batch, tokens, channels = x.shape
    taps = weight.shape[1]
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    programs = _programs(batch, tokens, streams, length)
    partial = torch.empty((programs, taps + 1, channels), dtype=torch.float32, device=x.device)
    if grad.numel():
        _backward_kernel[(programs * triton.cdiv(channels, block_channels),)](
            grad,
            x,
            weight,
            texts,
            grad_x,
            partial,
            batch,
            tokens,
            channels,
            grad.stride(1),
            x.stride(1),
            channels,
            taps=taps,
            rule=rule,
            streams=streams,
            block_channels=block_channels,
            length=length,
            unroll=UNROLL,
            num_warps=warps,
            enable_fp_fusion=True,
        )
    sums = partial.sum(0)  # [taps + 1, channels]
    return grad_x, sums[:taps].t().contiguous().to(weight.dtype), sums[taps].clone()
