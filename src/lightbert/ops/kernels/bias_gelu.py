"""Bias and GELU on a GPU: elementwise, or with a linear layer that has one output.

The backward pass sums the gradients of bias and weight in two stages, per program and then over programs, in a fixed
order. It can also write the activations again, for a matmul that didn't keep them. With one output, a program reads
some tokens and writes a score for each, and no activations are written.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels import tiles as shared
from lightbert.ops.kernels.tiles import load, steps_per_program, store, sum_programs, sum_programs_apart

TOKENS, CHANNELS, WARPS = 8, 256, 4
BACKWARD_TOKENS, REGISTERS = 4, 64
"""In the backward pass, one load of 16 bytes of each input per thread. With an explicit limit of registers the compiler
starts all loads first; without one it has each wait for the arithmetic on the one before, to save a few registers."""
SCORE_ELEMENTS = 2048
"""Of a block of tokens with all of their channels, for a linear layer with one output."""


@triton.jit
def lower_tail(u):
    """Φ(-|u|), the distribution function of the normal distribution below zero, as two to the power of a polynomial.

    The polynomial is log2(Φ) with the least error up to |u| = 9. The result has an absolute error below 2e-6 and, up to
    there, a relative error below 2.4e-4; beyond, it decreases to 0. A power has no cancellation as 1 + erf has, and
    needs neither a division nor a second branch.
    """
    a = tl.abs(u)
    power = -1.2906309621030232e-06 * a + 4.989665831089951e-05
    power = power * a - 0.0008356024045497179
    power = power * a + 0.008146683685481548
    power = power * a - 0.05330014228820801
    power = power * a - 0.4590110182762146
    power = power * a - 1.1510809659957886
    return tl.exp2(power * a - 1.0000053644180298)


@triton.jit
def _bias_gelu_forward_kernel(
    x,
    bias,
    out,
    n_tokens,
    width: tl.constexpr,
    even: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    parts: tl.constexpr = (width + block_channels - 1) // block_channels
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    token = (tl.program_id(0) // parts) * block_tokens + tl.arange(0, block_tokens)
    exists = channel < width
    within = (token < n_tokens)[:, None] & exists[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    u = load(x, place, within, even) + load(bias, channel, exists, even)[None, :]
    # u · Φ(u) on both sides of zero.
    store(out, place, tl.maximum(u, 0.0) - tl.abs(u) * lower_tail(u), within, even)


@triton.jit
def _bias_gelu_backward_kernel(
    grad,
    x,
    bias,
    grad_x,
    activated,
    partial,
    n_tokens,
    width: tl.constexpr,
    even: tl.constexpr,
    steps: tl.constexpr,
    stages: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Write the gradient of x, its sum over this program's tokens, and the activations unless they are None."""
    parts: tl.constexpr = (width + block_channels - 1) // block_channels
    program = tl.program_id(0) // parts
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    exists = channel < width
    shift = load(bias, channel, exists, even)
    of_bias = tl.zeros((block_tokens, block_channels), tl.float32)
    for step in tl.range(steps, num_stages=stages):
        token = (program * steps + step) * block_tokens + tl.arange(0, block_tokens)
        within = (token < n_tokens)[:, None] & exists[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        u = load(x, place, within, even) + shift[None, :]
        # Before the arithmetic, so that both loads are on their way together.
        of_x = load(grad, place, within, even)
        # The density, exp(-u²/2) / √(2π), as a power of two.
        density = tl.exp2(u * u * -0.7213475204444817 - 1.3257480647361593)
        tail = lower_tail(u)
        below = tail - tl.abs(u) * density
        of_x *= tl.where(u < 0, below, 1.0 - below)
        of_bias += of_x
        store(grad_x, place, of_x, within, even)
        if activated is not None:
            store(activated, place, tl.maximum(u, 0.0) - tl.abs(u) * tail, within, even)
    store(partial + program.to(tl.int64) * width, channel, tl.sum(of_bias, axis=0), exists, even)


def _settings(x: Tensor, block_tokens: int, steps: int = 1) -> dict[str, int | bool]:
    """What both kernels are compiled for. ``steps``: the blocks of tokens of a program."""
    width = x.shape[-1]
    return {
        "width": width,
        "even": width % CHANNELS == 0 and x.numel() % (width * block_tokens * steps) == 0,
        "block_tokens": block_tokens,
        "block_channels": CHANNELS,
        "enable_fp_fusion": True,
    }


def _blocks(x: Tensor, block_tokens: int) -> tuple[int, int]:
    """The number of blocks of tokens and of channels."""
    width = x.shape[-1]
    tokens = x.numel() // width if width else 0
    return triton.cdiv(tokens, block_tokens), triton.cdiv(width, CHANNELS)


def forward(x: Tensor, bias: Tensor, *, block_tokens: int = TOKENS, warps: int = WARPS) -> Tensor:
    """GELU of x + bias, in the dtype of x."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        tiles, parts = _blocks(x, block_tokens)
        _bias_gelu_forward_kernel[(tiles * parts,)](
            x.contiguous(),
            bias.contiguous(),
            out,
            x.numel() // x.shape[-1],
            num_warps=warps,
            **_settings(x, block_tokens),
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    bias: Tensor,
    activated: Tensor | None = None,
    *,
    block_tokens: int = BACKWARD_TOKENS,
    warps: int = WARPS,
    stages: int = 1,
    registers: int | None = REGISTERS,
    programs: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the bias.

    activated: a contiguous tensor that gets what `forward` returned. stages: more than one loads blocks ahead, through
    shared memory. registers: the limit per thread. programs: the most that add up tokens; by default twice as many as
    usual, since these are small.
    """
    tiles, parts = _blocks(x, block_tokens)
    steps = steps_per_program(tiles * parts, programs or 2 * shared.PROGRAMS)
    programs = triton.cdiv(tiles, steps)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = torch.empty((programs, x.shape[-1]), dtype=torch.float32, device=x.device)
    if grad_x.numel():
        _bias_gelu_backward_kernel[(programs * parts,)](
            grad.contiguous(),
            x.contiguous(),
            bias.contiguous(),
            grad_x,
            activated,
            partial,
            x.numel() // x.shape[-1],
            steps=steps,
            stages=stages,
            num_warps=warps,
            maxnreg=registers,
            **_settings(x, block_tokens, steps),
        )
    return grad_x, sum_programs(partial, bias.dtype)


@triton.jit
def _bias_gelu_score_forward_kernel(
    x,
    bias,
    weight,
    scores,
    n_tokens,
    width: tl.constexpr,
    even: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    channel = tl.arange(0, block_channels)
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    known, exists = token < n_tokens, channel < width
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    u = load(x, place, known[:, None] & exists[None, :], even) + load(bias, channel, exists, even)[None, :]
    activated = tl.maximum(u, 0.0) - tl.abs(u) * lower_tail(u)
    score = tl.sum(activated * load(weight, channel, exists, even)[None, :], axis=1)
    store(scores, token, score, known, even)


@triton.jit
def _bias_gelu_score_backward_kernel(
    grad,
    x,
    bias,
    weight,
    grad_x,
    partial,
    n_tokens,
    width: tl.constexpr,
    even: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Write the gradient of x, and the sums over this program's tokens for the bias and, after them, for the weight."""
    channel = tl.arange(0, block_channels)
    exists = channel < width
    shift, factor = load(bias, channel, exists, even), load(weight, channel, exists, even)
    of_bias = tl.zeros((block_tokens, block_channels), tl.float32)
    of_weight = tl.zeros((block_tokens, block_channels), tl.float32)
    for step in range(steps):
        token = (tl.program_id(0) * steps + step) * block_tokens + tl.arange(0, block_tokens)
        known = token < n_tokens
        within = known[:, None] & exists[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        u = load(x, place, within, even) + shift[None, :]
        of_score = load(grad, token, known, even)[:, None]
        density = tl.exp2(u * u * -0.7213475204444817 - 1.3257480647361593)
        tail = lower_tail(u)
        below = tail - tl.abs(u) * density
        of_x = of_score * factor[None, :] * tl.where(u < 0, below, 1.0 - below)
        of_bias += of_x
        of_weight += of_score * (tl.maximum(u, 0.0) - tl.abs(u) * tail)
        store(grad_x, place, of_x, within, even)
    sums = partial + tl.program_id(0).to(tl.int64) * 2 * width
    store(sums, channel, tl.sum(of_bias, axis=0), exists, even)
    store(sums + width, channel, tl.sum(of_weight, axis=0), exists, even)


def _score_settings(x: Tensor, steps: int = 1) -> dict[str, int | bool]:
    width = x.shape[-1]
    channels = triton.next_power_of_2(width)
    tokens = max(1, SCORE_ELEMENTS // channels)
    return {
        "width": width,
        "even": channels == width and x.numel() % (width * tokens * steps) == 0,
        "block_tokens": tokens,
        "block_channels": channels,
        "num_warps": WARPS,
        "enable_fp_fusion": True,
    }


def score_forward(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """A score for each token, in fp32."""
    scores = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    if scores.numel():
        settings = _score_settings(x)
        _bias_gelu_score_forward_kernel[(triton.cdiv(scores.numel(), settings["block_tokens"]),)](
            x.contiguous(), bias.contiguous(), weight.contiguous(), scores, scores.numel(), **settings
        )
    return scores


def score_backward(grad: Tensor, x: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, bias and weight."""
    tiles = triton.cdiv(grad.numel(), _score_settings(x)["block_tokens"])
    steps = steps_per_program(tiles)
    settings, programs = _score_settings(x, steps), triton.cdiv(tiles, steps)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = torch.empty((programs, 2 * x.shape[-1]), dtype=torch.float32, device=x.device)
    if grad_x.numel():
        _bias_gelu_score_backward_kernel[(programs,)](
            grad.contiguous(),
            x.contiguous(),
            bias.contiguous(),
            weight.contiguous(),
            grad_x,
            partial,
            grad.numel(),
            steps=steps,
            **settings,
        )
    return grad_x, *sum_programs_apart(partial, bias.shape, bias.dtype, weight.dtype)
