"""Bias, GELU and a linear layer with one output on a GPU: a program reads some tokens and writes a score for each.

No activations are written. The backward pass has the gradients of bias and weight in two stages, per program and then
over programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.bias_gelu.triton import lower_tail
from lightbert.ops.masked_tiles.triton import load, store
from lightbert.ops.partial_sums import triton as partial_sums

ELEMENTS, WARPS = 2048, 4
"""Of a block of tokens, for all of their channels, and the warps of a program."""


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


def _settings(x: Tensor, steps: int = 1) -> dict[str, int | bool]:
    width = x.shape[-1]
    channels = triton.next_power_of_2(width)
    tokens = max(1, ELEMENTS // channels)
    return {
        "width": width,
        "even": channels == width and x.numel() % (width * tokens * steps) == 0,
        "block_tokens": tokens,
        "block_channels": channels,
        "num_warps": WARPS,
        "enable_fp_fusion": True,
    }


def forward(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """A score for each token, in fp32."""
    scores = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    if scores.numel():
        settings = _settings(x)
        _bias_gelu_score_forward_kernel[(triton.cdiv(scores.numel(), settings["block_tokens"]),)](
            x.contiguous(), bias.contiguous(), weight.contiguous(), scores, scores.numel(), **settings
        )
    return scores


def backward(grad: Tensor, x: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, bias and weight."""
    tiles = triton.cdiv(grad.numel(), _settings(x)["block_tokens"])
    steps = partial_sums.steps_per_program(tiles)
    settings, programs = _settings(x, steps), triton.cdiv(tiles, steps)
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
    return grad_x, *partial_sums.sum_programs_apart(partial, bias.shape, bias.dtype, weight.dtype)
