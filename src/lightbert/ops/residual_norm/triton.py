"""Residual connection and layer norm on a GPU: a program computes a few whole tokens.

The backward pass reads both inputs again instead of a stored sum: that is as many bytes as writing and reading the sum
in half precision, and exact. The gradients of weight and bias are summed in two stages, per program and then over
programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.partial_sums.triton import steps_per_program, sum_programs

TILE, WARPS = 2048, 4
"""Elements and warps of a program: 16 elements per thread, two loads of 16 bytes in half precision."""


@triton.jit
def _load_sum(x, change, place, within):
    return tl.load(x + place, mask=within, other=0.0).to(tl.float32) + tl.load(
        change + place, mask=within, other=0.0
    ).to(tl.float32)


@triton.jit
def _residual_norm_forward_kernel(
    x,
    change,
    weight,
    bias,
    out,
    means,
    scales,
    n_tokens,
    eps,
    width: tl.constexpr,
    block_tokens: tl.constexpr,
    block_width: tl.constexpr,
):
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    channel = tl.arange(0, block_width)
    real, exists = token < n_tokens, channel < width
    within = real[:, None] & exists[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    factor = tl.load(weight + channel, mask=exists, other=0.0).to(tl.float32)
    shift = tl.load(bias + channel, mask=exists, other=0.0).to(tl.float32)

    total = _load_sum(x, change, place, within)
    mean = tl.sum(total, axis=1) / width
    centred = tl.where(exists[None, :], total - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + eps)
    result = centred * scale[:, None] * factor[None, :] + shift[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=within)
    tl.store(means + token, mean, mask=real)
    tl.store(scales + token, scale, mask=real)


@triton.jit
def _residual_norm_backward_kernel(
    grad,
    x,
    change,
    weight,
    means,
    scales,
    grad_sum,
    partial,
    n_tokens,
    width: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_width: tl.constexpr,
):
    """Write the gradient of the sum, and this program's sums for weight and bias: [2, width]."""
    channel = tl.arange(0, block_width)
    exists = channel < width
    factor = tl.load(weight + channel, mask=exists, other=0.0).to(tl.float32)
    of_weight = tl.zeros((block_tokens, block_width), tl.float32)
    of_bias = tl.zeros((block_tokens, block_width), tl.float32)
    for step in range(steps):
        token = (tl.program_id(0) * steps + step) * block_tokens + tl.arange(0, block_tokens)
        real = token < n_tokens
        within = real[:, None] & exists[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        mean = tl.load(means + token, mask=real, other=0.0)
        scale = tl.load(scales + token, mask=real, other=0.0)
        normal = (_load_sum(x, change, place, within) - mean[:, None]) * scale[:, None]
        of_out = tl.load(grad + place, mask=within, other=0.0).to(tl.float32)
        of_weight += of_out * normal
        of_bias += of_out

        of_normal = of_out * factor[None, :]
        by_scale = tl.sum(of_normal * normal, axis=1) / width
        by_mean = tl.sum(of_normal, axis=1) / width
        of_sum = (of_normal - by_mean[:, None] - normal * by_scale[:, None]) * scale[:, None]
        tl.store(grad_sum + place, of_sum.to(grad_sum.dtype.element_ty), mask=within)

    result = partial + tl.program_id(0).to(tl.int64) * (2 * width) + channel
    tl.store(result, tl.sum(of_weight, axis=0), mask=exists)
    tl.store(result + width, tl.sum(of_bias, axis=0), mask=exists)


def _blocks(width: int, tile: int) -> dict[str, int]:
    block_width = triton.next_power_of_2(width)
    return {"width": width, "block_width": block_width, "block_tokens": max(1, tile // block_width)}


def forward(
    x: Tensor, change: Tensor, weight: Tensor, bias: Tensor, eps: float, *, tile: int = TILE, warps: int = WARPS
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized sum in the dtype of the change; the mean and the scale of each token in fp32."""
    out = torch.empty(change.shape, dtype=change.dtype, device=x.device)
    mean, scale = (torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device) for _ in range(2))
    if out.numel():
        blocks = _blocks(x.shape[-1], tile)
        _residual_norm_forward_kernel[(triton.cdiv(mean.numel(), blocks["block_tokens"]),)](
            x.contiguous(),
            change.contiguous(),
            weight.contiguous(),
            bias.contiguous(),
            out,
            mean,
            scale,
            mean.numel(),
            eps,
            num_warps=warps,
            enable_fp_fusion=True,
            **blocks,
        )
    return out, mean, scale


def backward(
    grad: Tensor,
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    mean: Tensor,
    scale: Tensor,
    *,
    tile: int = TILE,
    warps: int = WARPS,
    programs: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradient of the sum, and those of weight and bias in one tensor [2, D]."""
    blocks = _blocks(x.shape[-1], tile)
    tiles = triton.cdiv(mean.numel(), blocks["block_tokens"])
    steps = steps_per_program(tiles, programs)
    programs = triton.cdiv(tiles, steps)
    grad_sum = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, change.dtype), device=x.device)
    partial = torch.empty((programs, 2, x.shape[-1]), dtype=torch.float32, device=x.device)
    if grad.numel():
        _residual_norm_backward_kernel[(programs,)](
            grad.contiguous(),
            x.contiguous(),
            change.contiguous(),
            weight.contiguous(),
            mean,
            scale,
            grad_sum,
            partial,
            mean.numel(),
            steps=steps,
            num_warps=warps,
            enable_fp_fusion=True,
            **blocks,
        )
    return grad_sum, sum_programs(partial, weight.dtype)
