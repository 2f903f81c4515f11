"""Depthwise convolution on a GPU: a program computes a block of tokens and channels, tap by tap.

The rows of the batch follow each other as one sequence of B·T tokens; a tap that leaves its row is masked like one that
leaves its text. The K shifted reads of a block hit the L1 cache, so memory is read once. The backward pass reads the
output's gradient at all shifts and the input at its own place only, and computes all gradients from that. The
gradients of weight and bias are summed in two stages, per program and then over programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat, text_rule

FORWARD = {"block_tokens": 16, "block_channels": 64, "warps": 2}
BACKWARD = {"block_tokens": 16, "block_channels": 64, "steps": 16, "warps": 4}


@triton.jit
def _reads(texts, text, token, real, place, row_tokens, shift, rule: tl.constexpr):
    """Whether each token's tap at ``shift`` stays in its row and, if texts are compared (rule 2), in its text."""
    reads = real & (place + shift >= 0) & (place + shift < row_tokens)
    if rule > 1:
        reads = reads & (text != 0) & (tl.load(texts + token + shift, mask=reads, other=0) == text)
    return reads


@triton.jit
def _depthwise_forward_kernel(
    x,
    weight,
    bias,
    texts,
    out,
    n_tokens,
    row_tokens,
    channels,
    x_stride,
    taps: tl.constexpr,
    rule: tl.constexpr,
    has_bias: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    exists = channel < channels
    token = (tl.program_id(0) // parts) * block_tokens + tl.arange(0, block_tokens)
    real = token < n_tokens
    place = token % row_tokens
    source = x + (token.to(tl.int64) * x_stride)[:, None] + channel[None, :]
    text = place
    if rule > 1:
        text = tl.load(texts + token, mask=real, other=0)

    mixed = tl.zeros((block_tokens, block_channels), tl.float32)
    if has_bias:
        mixed += tl.load(bias + channel, mask=exists, other=0.0).to(tl.float32)[None, :]
    for tap in tl.static_range(taps):
        shift = tap - radius
        reads = _reads(texts, text, token, real, place, row_tokens, shift, rule)
        if rule == 1:
            reads = reads & (tl.load(texts + token + shift, mask=reads, other=0) != 0)
        value = tl.load(source + shift * x_stride, mask=reads[:, None] & exists[None, :], other=0.0)
        factor = tl.load(weight + tap * channels + channel, mask=exists, other=0.0)
        mixed += value.to(tl.float32) * factor.to(tl.float32)[None, :]
    target = out + (token.to(tl.int64) * channels)[:, None] + channel[None, :]
    tl.store(target, mixed.to(out.dtype.element_ty), mask=real[:, None] & exists[None, :])


@triton.jit
def _depthwise_backward_kernel(
    grad,
    x,
    weight,
    texts,
    grad_x,
    partial,
    n_tokens,
    row_tokens,
    channels,
    grad_stride,
    x_stride,
    taps: tl.constexpr,
    rule: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Write the gradient of x, and this program's sums for each tap's weight and the bias: [channels, taps + 1].

    Tap j of token s - (j - radius) read token s, so the gradient is read with the taps in reverse order.
    """
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    program = tl.program_id(0) // parts
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    exists = channel < channels

    sums = ()
    for _ in tl.static_range(taps + 1):
        sums = sums + (tl.zeros((block_tokens, block_channels), tl.float32),)
    for step in range(steps):
        token = (program * steps + step) * block_tokens + tl.arange(0, block_tokens)
        real = token < n_tokens
        within = real[:, None] & exists[None, :]
        place = token % row_tokens
        text, is_read = place, real
        if rule > 0:
            text = tl.load(texts + token, mask=real, other=0)
            is_read = real & (text != 0)
        change = grad + (token.to(tl.int64) * grad_stride)[:, None] + channel[None, :]
        source = x + (token.to(tl.int64) * x_stride)[:, None] + channel[None, :]
        value = tl.load(source, mask=is_read[:, None] & exists[None, :], other=0.0).to(tl.float32)

        of_x = tl.zeros((block_tokens, block_channels), tl.float32)
        added = ()
        for tap in tl.static_range(taps):
            shift = radius - tap
            reads = _reads(texts, text, token, is_read, place, row_tokens, shift, rule)
            seen = tl.load(change + shift * grad_stride, mask=reads[:, None] & exists[None, :], other=0.0)
            seen = seen.to(tl.float32)
            factor = tl.load(weight + tap * channels + channel, mask=exists, other=0.0)
            of_x += seen * factor.to(tl.float32)[None, :]
            added = added + (sums[tap] + seen * value,)
        of_bias = tl.load(change, mask=within, other=0.0).to(tl.float32)
        sums = added + (sums[taps] + of_bias,)
        target = grad_x + (token.to(tl.int64) * channels)[:, None] + channel[None, :]
        tl.store(target, of_x.to(grad_x.dtype.element_ty), mask=within)

    result = partial + program.to(tl.int64) * (taps + 1) * channels + channel
    for tap in tl.static_range(taps + 1):
        tl.store(result + tap * channels, tl.sum(sums[tap], axis=0), mask=exists)


@triton.jit
def _depthwise_combine_kernel(
    partial,
    of_weight,
    of_bias,
    programs,
    channels,
    taps: tl.constexpr,
    block: tl.constexpr,
    lanes: tl.constexpr,
    rounds: tl.constexpr,
):
    """Sum the programs' results [programs, taps + 1, channels] into those of the weight and the bias.

    ``rounds`` · ``lanes`` is at least the number of programs. It is a power of two, so that few variants are compiled.
    """
    entry = tl.program_id(0) * block + tl.arange(0, block)
    exists = entry < (taps + 1) * channels
    total = tl.zeros((lanes, block), tl.float32)
    for index in range(rounds):
        program = index * lanes + tl.arange(0, lanes)
        source = partial + program.to(tl.int64)[:, None] * ((taps + 1) * channels) + entry[None, :]
        total += tl.load(source, mask=(program < programs)[:, None] & exists[None, :], other=0.0)
    summed = tl.sum(total, axis=0)
    tap, channel = entry // channels, entry % channels
    tl.store(of_weight + channel * taps + tap, summed.to(of_weight.dtype.element_ty), mask=exists & (tap < taps))
    tl.store(of_bias + channel, summed, mask=exists & (tap == taps))


def _tokens_per_block(blocks: dict[str, int], taps: int) -> int:
    """A thread's registers hold one sum per tap: with more taps a block has half as many tokens."""
    return blocks["block_tokens"] if taps <= 9 else blocks["block_tokens"] // 2


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    texts: Tensor | None,
    *,
    block_tokens: int = FORWARD["block_tokens"],
    block_channels: int = FORWARD["block_channels"],
    warps: int = FORWARD["warps"],
) -> Tensor:
    """The convolution, by blocks of a chosen size."""
    x, taps_first = flat(x), weight.t().contiguous()  # [K, D]: a program reads consecutive channels of a tap
    texts, rule = text_rule(texts)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        batch, tokens, channels = x.shape
        blocks = triton.cdiv(batch * tokens, block_tokens) * triton.cdiv(channels, block_channels)
        _depthwise_forward_kernel[(blocks,)](
            x,
            taps_first,
            None if bias is None else bias.contiguous(),
            texts,
            out,
            batch * tokens,
            tokens,
            channels,
            x.stride(1),
            taps=weight.shape[1],
            rule=rule,
            has_bias=bias is not None,
            block_tokens=block_tokens,
            block_channels=block_channels,
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
    block_tokens: int | None = None,
    block_channels: int = BACKWARD["block_channels"],
    steps: int = BACKWARD["steps"],
    warps: int = BACKWARD["warps"],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias, by blocks of a chosen size."""
    grad, x, taps_first = flat(grad), flat(x), weight.t().contiguous()
    texts, rule = text_rule(texts)
    (batch, tokens, channels), taps = x.shape, weight.shape[1]
    block_tokens = block_tokens or _tokens_per_block(BACKWARD, taps)
    programs = triton.cdiv(batch * tokens, block_tokens * steps)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = torch.empty((programs, taps + 1, channels), dtype=torch.float32, device=x.device)
    of_weight = torch.empty(weight.shape, dtype=weight.dtype, device=x.device)
    of_bias = torch.empty(channels, dtype=torch.float32, device=x.device)
    if grad.numel():
        _depthwise_backward_kernel[(programs * triton.cdiv(channels, block_channels),)](
            grad,
            x,
            taps_first,
            texts,
            grad_x,
            partial,
            batch * tokens,
            tokens,
            channels,
            grad.stride(1),
            x.stride(1),
            taps=taps,
            rule=rule,
            steps=steps,
            block_tokens=block_tokens,
            block_channels=block_channels,
            num_warps=warps,
            enable_fp_fusion=True,
        )
    if of_weight.numel():
        block, lanes = 64, 16
        _depthwise_combine_kernel[(triton.cdiv((taps + 1) * channels, block),)](
            partial,
            of_weight,
            of_bias,
            programs,
            channels,
            taps=taps,
            block=block,
            lanes=lanes,
            rounds=triton.next_power_of_2(triton.cdiv(programs, lanes)),
            num_warps=4,
            enable_fp_fusion=True,
        )
    return grad_x, of_weight, of_bias
