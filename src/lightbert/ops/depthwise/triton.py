"""Depthwise convolution on a GPU: a block of tokens and channels per program.

The rows of the batch follow each other as one sequence of B·T tokens; a tap that leaves its row is masked like one that
leaves its text. A block's tokens are read once per tap, which the first-level cache serves. The gradient of the weight
is summed in two stages, per program and then over programs, in an order that never changes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat, text_rule

BLOCK_TOKENS, BLOCK_CHANNELS, WARPS, STEPS = 32, 128, 4, 8


@triton.jit
def _reads(texts, token, real, shift: tl.constexpr, row_tokens, rule: tl.constexpr):
    """Whether each token reads the one ``shift`` places on."""
    place = token % row_tokens + shift
    reads = real & (place >= 0) & (place < row_tokens)
    if rule > 0:
        there = tl.load(texts + token + shift, mask=reads, other=0)
        reads = reads & (there != 0)
        if rule > 1:
            reads = reads & (there == tl.load(texts + token, mask=real, other=0))
    return reads


@triton.jit
def _is_read(texts, token, real, shift: tl.constexpr, row_tokens, rule: tl.constexpr):
    """Whether each token is read by the one ``shift`` places back."""
    place = token % row_tokens - shift
    read = real & (place >= 0) & (place < row_tokens)
    if rule > 0:
        here = tl.load(texts + token, mask=real, other=0)
        read = read & (here != 0)
        if rule > 1:
            read = read & (here == tl.load(texts + token - shift, mask=read, other=0))
    return read


@triton.jit
def _forward_kernel(
    x,
    weight,
    bias,
    texts,
    out,
    n_tokens,
    row_tokens,
    channels,
    x_stride,
    out_stride,
    taps: tl.constexpr,
    rule: tl.constexpr,
    has_bias: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    token = (tl.program_id(0) // parts) * block_tokens + tl.arange(0, block_tokens)
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    real, there = token < n_tokens, channel < channels
    source = x + (token.to(tl.int64) * x_stride)[:, None] + channel[None, :]
    mixed = tl.zeros((block_tokens, block_channels), tl.float32)
    if has_bias:
        mixed += tl.load(bias + channel, mask=there, other=0.0).to(tl.float32)[None, :]
    for tap in tl.static_range(taps):
        reads = _reads(texts, token, real, tap - radius, row_tokens, rule)
        read = tl.load(source + (tap - radius) * x_stride, mask=reads[:, None] & there[None, :], other=0.0)
        factor = tl.load(weight + channel * taps + tap, mask=there, other=0.0).to(tl.float32)
        mixed += read.to(tl.float32) * factor[None, :]
    target = out + (token.to(tl.int64) * out_stride)[:, None] + channel[None, :]
    tl.store(target, mixed.to(out.dtype.element_ty), mask=real[:, None] & there[None, :])


@triton.jit
def _backward_kernel(
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
    out_stride,
    taps: tl.constexpr,
    rule: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
    block_rows: tl.constexpr,
):
    """Write the gradient of x, and this program's sums for each tap's weight and the bias: [taps + 1, channels]."""
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    program = tl.program_id(0) // parts
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    there = channel < channels
    row = tl.arange(0, block_rows)
    sums = tl.zeros((block_rows, block_channels), tl.float32)
    for step in range(steps):
        token = (program * steps + step) * block_tokens + tl.arange(0, block_tokens)
        real = token < n_tokens
        both = real[:, None] & there[None, :]
        place = token.to(tl.int64)
        of_out = grad + (place * grad_stride)[:, None] + channel[None, :]
        source = x + (place * x_stride)[:, None] + channel[None, :]
        change = tl.load(of_out, mask=both, other=0.0).to(tl.float32)
        of_x = tl.zeros((block_tokens, block_channels), tl.float32)
        for tap in tl.static_range(taps):
            shift = tap - radius
            reads = _reads(texts, token, real, tap - radius, row_tokens, rule)
            read = tl.load(source + shift * x_stride, mask=reads[:, None] & there[None, :], other=0.0)
            of_tap = tl.sum(read.to(tl.float32) * change, axis=0)
            sums += tl.where((row == tap)[:, None], of_tap[None, :], 0.0)

            is_read = _is_read(texts, token, real, tap - radius, row_tokens, rule)
            back = tl.load(of_out - shift * grad_stride, mask=is_read[:, None] & there[None, :], other=0.0)
            factor = tl.load(weight + channel * taps + tap, mask=there, other=0.0).to(tl.float32)
            of_x += back.to(tl.float32) * factor[None, :]
        sums += tl.where((row == taps)[:, None], tl.sum(change, axis=0)[None, :], 0.0)
        target = grad_x + (place * out_stride)[:, None] + channel[None, :]
        tl.store(target, of_x.to(grad_x.dtype.element_ty), mask=both)
    target = partial + (program * (taps + 1) + row)[:, None] * channels + channel[None, :]
    tl.store(target, sums, mask=(row <= taps)[:, None] & there[None, :])


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    texts: Tensor | None,
    *,
    block_tokens: int = BLOCK_TOKENS,
    block_channels: int = BLOCK_CHANNELS,
    warps: int = WARPS,
) -> Tensor:
    """The convolution, by blocks of a chosen size."""
    x, weight = flat(x), weight.contiguous()
    texts, rule = text_rule(texts)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        batch, tokens, channels = x.shape
        grid = (triton.cdiv(batch * tokens, block_tokens) * triton.cdiv(channels, block_channels),)
        _forward_kernel[grid](
            x,
            weight,
            None if bias is None else bias.contiguous(),
            texts,
            out,
            batch * tokens,
            tokens,
            channels,
            x.stride(1),
            channels,
            taps=weight.shape[1],
            rule=rule,
            has_bias=bias is not None,
            block_tokens=block_tokens,
            block_channels=block_channels,
            num_warps=warps,
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    texts: Tensor | None,
    *,
    block_tokens: int = BLOCK_TOKENS,
    block_channels: int = BLOCK_CHANNELS,
    steps: int = STEPS,
    warps: int = WARPS,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias, by blocks of a chosen size."""
    grad, x, weight = flat(grad), flat(x), weight.contiguous()
    texts, rule = text_rule(texts)
    batch, tokens, channels = x.shape
    taps = weight.shape[1]
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    programs = triton.cdiv(batch * tokens, block_tokens * steps)
    partial = torch.empty((programs, taps + 1, channels), dtype=torch.float32, device=x.device)
    if grad.numel():
        grid = (programs * triton.cdiv(channels, block_channels),)
        _backward_kernel[grid](
            grad,
            x,
            weight,
            texts,
            grad_x,
            partial,
            batch * tokens,
            tokens,
            channels,
            grad.stride(1),
            x.stride(1),
            channels,
            taps=taps,
            rule=rule,
            steps=steps,
            block_tokens=block_tokens,
            block_channels=block_channels,
            block_rows=triton.next_power_of_2(taps + 1),
            num_warps=warps,
        )
    sums = partial.sum(0)  # [taps + 1, channels]
    return grad_x, sums[:taps].t().contiguous().to(weight.dtype), sums[taps].clone()


@torch.library.custom_op(
    "lightbert::depthwise",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? texts) -> Tensor",
)
def depthwise(x, weight, bias, texts):
    """See :func:`lightbert.ops.depthwise.depthwise`."""
    return forward(x, weight, bias, texts)


@torch.library.custom_op(
    "lightbert::depthwise_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor weight, Tensor? texts) -> (Tensor, Tensor, Tensor)",
)
def _backward(grad, x, weight, texts):
    return backward(grad, x, weight, texts)


@depthwise.register_fake
def _(x, weight, bias, texts):
    return x.new_empty(x.shape)


@_backward.register_fake
def _(grad, x, weight, texts):
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[:1], dtype=torch.float32)


def _keep(ctx, inputs, output):
    x, weight, bias, texts = inputs
    ctx.save_for_backward(x, weight, texts)
    ctx.bias_type = None if bias is None else bias.dtype


def _gradients(ctx, grad):
    of_x, of_weight, of_bias = _backward(grad, *ctx.saved_tensors)
    return of_x, of_weight, None if ctx.bias_type is None else of_bias.to(ctx.bias_type), None


depthwise.register_autograd(_gradients, setup_context=_keep)
