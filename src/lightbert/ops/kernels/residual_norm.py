"""Residual connection and layer norm on a GPU: a program computes a few whole tokens.

The backward pass reads both inputs again instead of a stored sum: that is as many bytes as writing and reading the sum
in half precision, and exact. It also computes again which elements dropout keeps. The gradients of weight and bias, and
of the change's bias, are summed in two stages, per program and then over programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels.tiles import (
    combine,
    load,
    mix,
    mix_columns,
    steps_per_program,
    store,
    sum_programs,
    sum_programs_apart,
)

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
    change_bias,
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
    if change_bias is not None:
        added += load(change_bias, channel, exists, even)[None, :]
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
def _fold(values, parts: tl.constexpr):
    """The sum of both halves of the tokens; ``parts`` is 1 if there is only one.

    A thread has elements of the same channels in both, so that it adds them without the others, and sums over several
    steps need half of the registers.
    """
    return tl.sum(tl.reshape(values, (parts, values.shape[0] // parts, values.shape[1])), axis=0)


@triton.jit
def _residual_norm_backward_kernel(
    grad,
    more_grad,
    x,
    change,
    weight,
    change_bias,
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
    """Write the gradient of the sum, with dropout also that of the change, and this program's sums [2 or 3, width]."""
    rows: tl.constexpr = 2 if change_bias is None else 3
    parts: tl.constexpr = 2 if block_tokens > 1 else 1
    channel = tl.arange(0, block_width)
    exists = channel < width
    factor = load(weight, channel, exists, even)
    if seed is not None:
        key = tl.load(seed).to(tl.uint32)
    of_weight = tl.zeros((block_tokens // parts, block_width), tl.float32)
    of_bias = tl.zeros((block_tokens // parts, block_width), tl.float32)
    if change_bias is not None:
        added_bias = load(change_bias, channel, exists, even)
        of_added = tl.zeros((block_tokens // parts, block_width), tl.float32)
    for step in tl.range(steps, num_stages=stages):
        token = (tl.program_id(0) * steps + step) * block_tokens + tl.arange(0, block_tokens)
        real = token < n_tokens
        within = real[:, None] & exists[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        mean = load(means, token, real, even)
        scale = load(scales, token, real, even)
        added = load(change, place, within, even)
        if change_bias is not None:
            added += added_bias[None, :]
        if seed is not None:
            keep = _keep(key, token, channel, drop, rescale)
            added *= keep
        normal = (load(x, place, within, even) + added - mean[:, None]) * scale[:, None]
        of_out = load(grad, place, within, even)
        if more_grad is not None:
            of_out += load(more_grad, place, within, even)
        of_weight += _fold(of_out * normal, parts)
        of_bias += _fold(of_out, parts)

        of_normal = of_out * factor[None, :]
        by_scale = tl.sum(of_normal * normal, axis=1) / width
        by_mean = tl.sum(of_normal, axis=1) / width
        of_sum = (of_normal - by_mean[:, None] - normal * by_scale[:, None]) * scale[:, None]
        store(grad_x, place, of_sum, within, even)
        if seed is not None:
            of_sum *= keep
            store(grad_change, place, of_sum, within, even)
        if change_bias is not None:
            of_added += _fold(of_sum, parts)

    result = partial + tl.program_id(0).to(tl.int64) * (rows * width)
    store(result, channel, tl.sum(of_weight, axis=0), exists, even)
    store(result + width, channel, tl.sum(of_bias, axis=0), exists, even)
    if change_bias is not None:
        store(result + 2 * width, channel, tl.sum(of_added, axis=0), exists, even)


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
    change_bias: Tensor | None = None,
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
            None if change_bias is None else change_bias.contiguous(),
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
    change_bias: Tensor | None = None,
    more_grad: Tensor | None = None,
    *,
    tile: int = TILE,
    warps: int = WARPS,
    stages: int = 1,
    registers: int | None = None,
    programs: int | None = None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """The gradients of x, of the change, of weight and bias in one tensor [2, D], and of the change's bias, if any.

    Without dropout, x and the change have one gradient, that of their sum, and the second result is None.
    more_grad: another part of the output's gradient, which is ``grad`` + ``more_grad``.
    stages: more than one loads blocks ahead, through shared memory. registers: the limit per thread.
    """
    dtype = torch.promote_types(x.dtype, change.dtype) if seed is None else x.dtype
    grad_x = torch.empty(x.shape, dtype=dtype, device=x.device)
    grad_change = None if seed is None else torch.empty(x.shape, dtype=change.dtype, device=x.device)
    tiles = triton.cdiv(mean.numel(), _settings(x, dropout, tile)["block_tokens"])
    steps = steps_per_program(tiles, programs)
    programs = triton.cdiv(tiles, steps)
    rows = 2 if change_bias is None else 3
    partial = torch.empty((programs, rows, x.shape[-1]), dtype=torch.float32, device=x.device)
    if grad.numel():
        _residual_norm_backward_kernel[(programs,)](
            grad.contiguous(),
            None if more_grad is None else more_grad.contiguous(),
            x.contiguous(),
            change.contiguous(),
            weight.contiguous(),
            None if change_bias is None else change_bias.contiguous(),
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
    if change_bias is None:
        return grad_x, grad_change, sum_programs(partial, weight.dtype), None
    shape = torch.Size([2, *weight.shape])
    of_weights, of_change_bias = sum_programs_apart(partial, shape, weight.dtype, change_bias.dtype)
    return grad_x, grad_change, of_weights, of_change_bias
