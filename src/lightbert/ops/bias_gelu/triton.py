"""Bias and GELU on a GPU: elementwise, with the sum of the bias's gradient in the backward pass.

The sum has two stages, per program and then over programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.partial_sums.triton import steps_per_program, sum_programs

TOKENS, CHANNELS, WARPS = 8, 256, 4


@triton.jit
def _normal(u):
    """The distribution function Φ(u) and the density φ(u) of the normal distribution, from one exponential.

    Abramowitz & Stegun 7.1.26: Φ(-|u|) = exp(-u²/2) / 2 · p(1 / (1 + 0.3275911·|u|/√2)), with an error below 8e-8. As a
    product it has no cancellation far below zero, as 1 + erf(u/√2) has.
    """
    exponential = tl.exp2(u * u * -0.7213475204444817)
    t = 1.0 / (1.0 + tl.abs(u) * 0.2316418882663604)
    p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    tail = 0.5 * p * exponential
    return tl.where(u < 0, tail, 1.0 - tail), exponential * 0.3989422804014327


@triton.jit
def _bias_gelu_forward_kernel(
    x, bias, out, n_tokens, width: tl.constexpr, block_tokens: tl.constexpr, block_channels: tl.constexpr
):
    parts: tl.constexpr = (width + block_channels - 1) // block_channels
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    token = (tl.program_id(0) // parts) * block_tokens + tl.arange(0, block_tokens)
    exists = channel < width
    within = (token < n_tokens)[:, None] & exists[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    shift = tl.load(bias + channel, mask=exists, other=0.0).to(tl.float32)
    u = tl.load(x + place, mask=within, other=0.0).to(tl.float32) + shift[None, :]
    below, _ = _normal(u)
    tl.store(out + place, (u * below).to(out.dtype.element_ty), mask=within)


@triton.jit
def _bias_gelu_backward_kernel(
    grad,
    x,
    bias,
    grad_x,
    partial,
    n_tokens,
    width: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Write the gradient of x, and its sum over this program's tokens."""
    parts: tl.constexpr = (width + block_channels - 1) // block_channels
    program = tl.program_id(0) // parts
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)
    exists = channel < width
    shift = tl.load(bias + channel, mask=exists, other=0.0).to(tl.float32)
    of_bias = tl.zeros((block_tokens, block_channels), tl.float32)
    for step in range(steps):
        token = (program * steps + step) * block_tokens + tl.arange(0, block_tokens)
        within = (token < n_tokens)[:, None] & exists[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        u = tl.load(x + place, mask=within, other=0.0).to(tl.float32) + shift[None, :]
        below, density = _normal(u)
        of_x = tl.load(grad + place, mask=within, other=0.0).to(tl.float32) * (below + u * density)
        of_bias += of_x
        tl.store(grad_x + place, of_x.to(grad_x.dtype.element_ty), mask=within)
    tl.store(partial + program.to(tl.int64) * width + channel, tl.sum(of_bias, axis=0), mask=exists)


def _blocks(x: Tensor, block_tokens: int) -> tuple[int, int, dict[str, int]]:
    """The number of blocks of tokens and of channels, and what both kernels are told about the shapes."""
    width = x.shape[-1]
    tokens = x.numel() // width if width else 0
    settings = {"width": width, "block_tokens": block_tokens, "block_channels": CHANNELS}
    return triton.cdiv(tokens, block_tokens), triton.cdiv(width, CHANNELS), settings


def forward(x: Tensor, bias: Tensor, *, block_tokens: int = TOKENS, warps: int = WARPS) -> Tensor:
    """GELU of x + bias, in the dtype of x."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        tiles, parts, settings = _blocks(x, block_tokens)
        _bias_gelu_forward_kernel[(tiles * parts,)](
            x.contiguous(),
            bias.contiguous(),
            out,
            x.numel() // x.shape[-1],
            num_warps=warps,
            enable_fp_fusion=True,
            **settings,
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    bias: Tensor,
    *,
    block_tokens: int = TOKENS,
    warps: int = WARPS,
    programs: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the bias."""
    tiles, parts, settings = _blocks(x, block_tokens)
    steps = steps_per_program(tiles * parts, programs)
    programs = triton.cdiv(tiles, steps)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = torch.empty((programs, x.shape[-1]), dtype=torch.float32, device=x.device)
    if grad_x.numel():
        _bias_gelu_backward_kernel[(programs * parts,)](
            grad.contiguous(),
            x.contiguous(),
            bias.contiguous(),
            grad_x,
            partial,
            x.numel() // x.shape[-1],
            steps=steps,
            num_warps=warps,
            enable_fp_fusion=True,
            **settings,
        )
    return grad_x, sum_programs(partial, bias.dtype)
