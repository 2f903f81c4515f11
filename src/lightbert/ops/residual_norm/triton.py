"""Residual connection and layer norm on a GPU: a program computes a few whole tokens.

The backward pass reads both inputs again instead of a stored sum: that is as many bytes as writing and reading the sum
in half precision, and exact. It also computes again which elements dropout keeps. The gradients of weight and bias are
summed in two stages, per program and then over programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.hashed_dropout.triton import combine, mix, mix_columns
from lightbert.ops.masked_tiles.triton import load, store
from lightbert.ops.partial_sums.triton import steps_per_program, sum_programs

TILE, WARPS = 2048, 4
"""Elements and warps of a program: 16 elements per thread, two loads of 16 bytes in half precision."""


@triton.jit
def _keep(seed, token, channel, drop: tl.constexpr, rescale: tl.constexpr):
    """The factors of dropout, 0 or ``rescale``; two neighbouring channels share the 32 bits of a hash.

    A token is mixed before it meets the seed: two seeds would otherwise have the same rows in another order.
    """
    of_token = mix(mix(token.to(tl.uint32)) ^ seed)
    word = combine(of_token[:, None], mix_columns(channel >> 1)[None, :])
    word = word << ((channel & 1) * 16).to(tl.uint32)[None, :]
    return tl.where(word >= drop, rescale, 0.0)


@triton.jit
def _residual_norm_forward_kernel(
    x,
    change,
    weight,
    bias,
    seed,
    out,
    means,
    scales,
    n_tokens,
    eps,
    width: tl.constexpr,
    drop: tl.constexpr,
    rescale: tl.constexpr,
    even: tl.constexpr,
    block_tokens: tl.constexpr,
    block_width: tl.constexpr,
):
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    channel = tl.arange(0, block_width)
    real, exists = token < n_tokens, channel < width
    within = real[:, None] & exists[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    factor = load(weight, channel, exists, even)
    shift = load(bias, channel, exists, even)

    added = load(change, place, within, even)
    if seed is not None:
        added *= _keep(tl.load(seed).to(tl.uint32), token, channel, drop, rescale)
    total = load(x, place, within, even) + added
    mean = tl.sum(total, axis=1) / width
    centred = total - mean[:, None]
    if not even:
        centred = tl.where(exists[None, :], centred, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + eps)
    store(out, place, centred * scale[:, None] * factor[None, :] + shift[None, :], within, even)
    store(means, token, mean, real, even)
    store(scales, token, scale, real, even)


@triton.jit
def _residual_norm_backward_kernel(
    grad,
    x,
    change,
    weight,
    seed,
    means,
    scales,
    grad_x,
    grad_change,
    partial,
    n_tokens,
    width: tl.constexpr,
    drop: tl.constexpr,
    rescale: tl.constexpr,
    even: tl.constexpr,
    steps: tl.constexpr,
    stages: tl.constexpr,
    block_tokens: tl.constexpr,
    block_width: tl.constexpr,
):
    """Write the gradient of the sum, with dropout also that of the change, and this program's sums [2, width]."""
    channel = tl.arange(0, block_width)
    exists = channel < width
    factor = load(weight, channel, exists, even)
    if seed is not None:
        key = tl.load(seed).to(tl.uint32)
    of_weight = tl.zeros((block_tokens, block_width), tl.float32)
    of_bias = tl.zeros((block_tokens, block_width), tl.float32)
    for step in tl.range(steps, num_stages=stages):
        token = (tl.program_id(0) * steps + step) * block_tokens + tl.arange(0, block_tokens)
        real = token < n_tokens
        within = real[:, None] & exists[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        mean = load(means, token, real, even)
        scale = load(scales, token, real, even)
        added = load(change, place, within, even)
        if seed is not None:
            keep = _keep(key, token, channel, drop, rescale)
            added *= keep
        normal = (load(x, place, within, even) + added - mean[:, None]) * scale[:, None]
        of_out = load(grad, place, within, even)
        of_weight += of_out * normal
        of_bias += of_out

        of_normal = of_out * factor[None, :]
        by_scale = tl.sum(of_normal * normal, axis=1) / width
        by_mean = tl.sum(of_normal, axis=1) / width
        of_sum = (of_normal - by_mean[:, None] - normal * by_scale[:, None]) * scale[:, None]
        store(grad_x, place, of_sum, within, even)
        if seed is not None:
            store(grad_change, place, of_sum * keep, within, even)

    result = partial + tl.program_id(0).to(tl.int64) * (2 * width)
    store(result, channel, tl.sum(of_weight, axis=0), exists, even)
    store(result + width, channel, tl.sum(of_bias, axis=0), exists, even)


def _settings(x: Tensor, dropout: float, tile: int, steps: int = 1) -> dict[str, int | float | bool]:
    """What both kernels are compiled for. ``steps``: the blocks of tokens of a program."""
    width = x.shape[-1]
    block_width = triton.next_power_of_2(width)
    block_tokens = max(1, tile // block_width)
    # 16 bits for each element, compared in the upper half of a word.
    drop = round(dropout * 2**16) << 16
    return {
        "width": width,
        "drop": drop,
        "rescale": 2**32 / (2**32 - drop),
        "even": width == block_width and x.numel() % (width * block_tokens * steps) == 0,
        "block_tokens": block_tokens,
        "block_width": block_width,
        "enable_fp_fusion": True,
    }


def forward(
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    seed: Tensor | None = None,
    dropout: float = 0.0,
    *,
    tile: int = TILE,
    warps: int = WARPS,
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized sum in the dtype of the change; the mean and the scale of each token in fp32."""
    out = torch.empty(change.shape, dtype=change.dtype, device=x.device)
    mean, scale = (torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device) for _ in range(2))
    if out.numel():
        settings = _settings(x, dropout, tile)
        _residual_norm_forward_kernel[(triton.cdiv(mean.numel(), settings["block_tokens"]),)](
            x.contiguous(),
            change.contiguous(),
            weight.contiguous(),
            bias.contiguous(),
            seed,
            out,
            mean,
            scale,
            mean.numel(),
            eps,
            num_warps=warps,
            **settings,
        )
    return out, mean, scale


def backward(
    grad: Tensor,
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    mean: Tensor,
    scale: Tensor,
    seed: Tensor | None = None,
    dropout: float = 0.0,
    *,
    tile: int = TILE,
    warps: int = WARPS,
    stages: int = 1,
    registers: int | None = None,
    programs: int | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradients of x, of the change, and of weight and bias in one tensor [2, D].

    Without dropout, x and the change have one gradient, that of their sum, and the second result is None.
    stages: more than one loads blocks ahead, through shared memory. registers: the limit per thread.
    """
    dtype = torch.promote_types(x.dtype, change.dtype) if seed is None else x.dtype
    grad_x = torch.empty(x.shape, dtype=dtype, device=x.device)
    grad_change = None if seed is None else torch.empty(x.shape, dtype=change.dtype, device=x.device)
    tiles = triton.cdiv(mean.numel(), _settings(x, dropout, tile)["block_tokens"])
    steps = steps_per_program(tiles, programs)
    programs = triton.cdiv(tiles, steps)
    partial = torch.empty((programs, 2, x.shape[-1]), dtype=torch.float32, device=x.device)
    if grad.numel():
        _residual_norm_backward_kernel[(programs,)](
            grad.contiguous(),
            x.contiguous(),
            change.contiguous(),
            weight.contiguous(),
            seed,
            mean,
            scale,
            grad_x,
            grad_change,
            partial,
            mean.numel(),
            steps=steps,
            stages=stages,
            num_warps=warps,
            maxnreg=registers,
            **_settings(x, dropout, tile, steps),
        )
    return grad_x, grad_change, sum_programs(partial, weight.dtype)
