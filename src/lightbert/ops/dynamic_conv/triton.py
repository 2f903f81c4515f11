"""Dynamic convolution on a GPU: a thread owns some channels of a head and computes several consecutive tokens of a row.

The values of a walk (see `lightbert.ops.walks`) stay in registers; the softmax of a token is computed by each of the
few threads that share its head. The backward pass computes the softmax again, also of the K//2 tokens on both sides of
a walk, whose taps read it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat, text_rule
from lightbert.ops.walks.triton import count_programs, first_tokens, has_whole_walks, in_row, same_text

FORWARD = {"walk": 4, "channels": 8, "warps": 4}
BACKWARD = {"walk": 4, "channels": 8, "warps": 4}
"""Walks of 8 tokens are 8 % faster on an H200, but take the compiler twice as long, which every first run waits for."""
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _softmax(logits, here, taps: tl.constexpr):
    """The exponentials of each token's logits at all taps, a tuple of [walks, 1], and the inverse of their sum."""
    scores, highest = (), tl.full(here.shape, float("-inf"), tl.float32)
    for tap in tl.static_range(taps):
        scores = scores + (tl.load(logits + tap, mask=here, other=0.0).to(tl.float32),)
        highest = tl.maximum(highest, scores[tap])
    weights, total = (), tl.zeros(highest.shape, tl.float32)
    for tap in tl.static_range(taps):
        weight = tl.exp2((scores[tap] - highest) * _LOG2_E)
        weights, total = weights + (weight,), total + weight
    return weights, 1.0 / total


@triton.jit
def _value(
    source,
    numbers,
    step: tl.constexpr,
    place,
    exists,
    row_tokens,
    stride: tl.constexpr,
    radius: tl.constexpr,
    rule: tl.constexpr,
    walk: tl.constexpr,
    whole: tl.constexpr,
):
    """The values of the token that is ``step`` tokens after the first that the walk reads, zero in the padding."""
    here = in_row(place, step - radius, row_tokens, walk, whole)
    if rule > 0:
        here = here & (numbers[step] != 0)
    return tl.load(source + step * stride, mask=here & exists, other=0.0)


@triton.jit(do_not_specialize=["rows", "row_tokens"])
def _dynamic_conv_forward_kernel(
    values,
    logits,
    texts,
    out,
    rows,
    row_tokens,
    value_stride: tl.constexpr,
    logit_stride: tl.constexpr,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    taps: tl.constexpr,
    padded: tl.constexpr,
    rule: tl.constexpr,
    whole: tl.constexpr,
    walk: tl.constexpr,
    walks: tl.constexpr,
    block_each: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    head = tl.program_id(0) % n_heads
    index = (tl.program_id(0) // n_heads) * walks + tl.arange(0, walks)[:, None]
    token, place = first_tokens(index, rows, row_tokens, walk)
    channel = tl.arange(0, block_each)[None, :]
    exists = channel < each

    source, near, numbers = values + (token - radius) * value_stride + head * each + channel, (), ()
    for step in tl.static_range(walk + 2 * radius):
        here = in_row(place, step - radius, row_tokens, walk, whole)
        if rule > 0:
            number = tl.load(texts + token + (step - radius), mask=here, other=0)
            numbers, here = numbers + (number,), here & (number != 0)
        near = near + (tl.load(source + step * value_stride, mask=here & exists, other=0.0),)

    kernels = logits + token * logit_stride + head * padded
    target = out + token * (n_heads * each) + head * each + channel
    for step in tl.static_range(walk):
        here = in_row(place, step, row_tokens, walk, whole)
        weights, scale = _softmax(kernels + step * logit_stride, here, taps)
        mixed = tl.zeros((walks, block_each), tl.float32)
        for tap in tl.static_range(taps):
            weight = weights[tap]
            if rule > 1:
                weight = tl.where(same_text(numbers[step + radius], numbers[step + tap]), weight, 0.0)
            mixed += weight * near[step + tap].to(tl.float32)
        tl.store(target + step * (n_heads * each), (mixed * scale).to(out.dtype.element_ty), mask=here & exists)


@triton.jit(do_not_specialize=["rows", "row_tokens"])
def _dynamic_conv_backward_kernel(
    grad,
    values,
    logits,
    texts,
    grad_values,
    grad_logits,
    rows,
    row_tokens,
    grad_stride: tl.constexpr,
    value_stride: tl.constexpr,
    logit_stride: tl.constexpr,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    taps: tl.constexpr,
    padded: tl.constexpr,
    rule: tl.constexpr,
    whole: tl.constexpr,
    walk: tl.constexpr,
    walks: tl.constexpr,
    block_each: tl.constexpr,
):
    """Write the gradients of the values and logits of the walks' tokens.

    Each token of a walk and around it adds its gradient, times the weight of a tap, to the token that this tap read.
    """
    radius: tl.constexpr = taps // 2
    head = tl.program_id(0) % n_heads
    index = (tl.program_id(0) // n_heads) * walks + tl.arange(0, walks)[:, None]
    token, place = first_tokens(index, rows, row_tokens, walk)
    channel = tl.arange(0, block_each)[None, :]
    exists = channel < each

    source = values + (token - radius) * value_stride + head * each + channel
    change_source = grad + (token - radius) * grad_stride + head * each + channel
    kernels = logits + (token - radius) * logit_stride + head * padded
    of_kernels = grad_logits + (token - radius) * logit_stride + head * padded + channel
    near, numbers, of_values = (), (), ()
    for _ in tl.static_range(walk):
        of_values = of_values + (tl.zeros((walks, block_each), tl.float32),)
    if rule > 0:
        for step in tl.static_range(walk + 2 * radius):
            here = in_row(place, step - radius, row_tokens, walk, whole)
            numbers = numbers + (tl.load(texts + token + (step - radius), mask=here, other=0),)
    for step in tl.static_range(radius):
        near = near + (
            _value(source, numbers, step, place, exists, row_tokens, value_stride, radius, rule, walk, whole),
        )
    for step in tl.static_range(walk + 2 * radius):
        # The taps of a token read ahead.
        if step + radius < walk + 2 * radius:
            value = _value(
                source, numbers, step + radius, place, exists, row_tokens, value_stride, radius, rule, walk, whole
            )
            near = near + (value,)
        here = in_row(place, step - radius, row_tokens, walk, whole)
        change = tl.load(change_source + step * grad_stride, mask=here & exists, other=0.0).to(tl.float32)
        weights, scale = _softmax(kernels + step * logit_stride, here, taps)

        scaled, added = change * scale, ()
        for read in tl.static_range(walk):
            of_value = of_values[read]  # type: ignore[var-annotated]
            if read + 2 * radius >= step and read <= step:
                weight = weights[read + 2 * radius - step]
                if rule > 1:
                    weight = tl.where(same_text(numbers[step], numbers[read + radius]), weight, 0.0)
                of_value += weight * scaled
            added = added + (of_value,)
        of_values = added

        if step >= radius and step < walk + radius:
            # Both with a column per tap; the others are zero, as the padding of the logits.
            kernel = tl.zeros((walks, block_each), tl.float32)
            of_kernel = tl.zeros((walks, block_each), tl.float32)
            for tap in tl.static_range(taps):
                product = tl.sum(change * near[step - radius + tap].to(tl.float32), axis=1, keep_dims=True)
                column = channel == tap  # type: ignore[unreachable]
                kernel = tl.where(column, weights[tap], kernel)
                if rule > 1:
                    column = column & same_text(numbers[step], numbers[step - radius + tap])
                of_kernel = tl.where(column, product, of_kernel)
            kernel *= scale
            of_logits = kernel * (of_kernel - tl.sum(kernel * of_kernel, axis=1, keep_dims=True))
            written = here & (channel < padded)
            tl.store(of_kernels + step * logit_stride, of_logits.to(grad_logits.dtype.element_ty), mask=written)

    target = grad_values + token * (n_heads * each) + head * each + channel
    for step in tl.static_range(walk):
        here, of_value = in_row(place, step, row_tokens, walk, whole) & exists, of_values[step]
        if rule == 1:
            of_value = tl.where(numbers[step + radius] != 0, of_value, 0.0)
        tl.store(target + step * (n_heads * each), of_value.to(grad_values.dtype.element_ty), mask=here)


def _numbers(
    values: Tensor, logits: Tensor, taps: int, walk: int, channels: int, warps: int
) -> tuple[tuple[int], dict[str, object]]:
    """The grid, and what both kernels are told about the shapes."""
    (_, tokens, width), (n_heads, padded) = values.shape, logits.shape[2:]
    block_each = triton.next_power_of_2(max(width // n_heads, padded))
    walks = max(1, 32 * warps * channels // block_each)
    settings = {
        "value_stride": values.stride(1),
        "logit_stride": logits.stride(1),
        "n_heads": n_heads,
        "each": width // n_heads,
        "taps": taps,
        "padded": padded,
        "whole": has_whole_walks(tokens, walk, taps),
        "walk": walk,
        "walks": walks,
        "block_each": block_each,
        "num_warps": warps,
        "enable_fp_fusion": True,
    }
    return (count_programs(values, walk, walks) * n_heads,), settings


def forward(
    values: Tensor,
    logits: Tensor,
    texts: Tensor | None,
    taps: int,
    *,
    walk: int = FORWARD["walk"],
    channels: int = FORWARD["channels"],
    warps: int = FORWARD["warps"],
) -> Tensor:
    """The convolution, by walks of a chosen length and with a chosen number of channels per thread."""
    values, logits = flat(values), logits.contiguous()
    texts, rule = text_rule(texts)
    out = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if out.numel():
        grid, settings = _numbers(values, logits, taps, walk, channels, warps)
        _dynamic_conv_forward_kernel[grid](
            values, logits, texts, out, values.shape[0], values.shape[1], rule=rule, **settings
        )
    return out


def backward(
    grad: Tensor,
    values: Tensor,
    logits: Tensor,
    texts: Tensor | None,
    taps: int,
    *,
    walk: int = BACKWARD["walk"],
    channels: int = BACKWARD["channels"],
    warps: int = BACKWARD["warps"],
) -> tuple[Tensor, Tensor]:
    """The gradients of values and logits, by walks and threads of a chosen size."""
    grad, values, logits = flat(grad), flat(values), logits.contiguous()
    texts, rule = text_rule(texts)
    grad_values = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    grad_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if grad.numel():
        grid, settings = _numbers(values, logits, taps, walk, channels, warps)
        _dynamic_conv_backward_kernel[grid](
            grad,
            values,
            logits,
            texts,
            grad_values,
            grad_logits,
            values.shape[0],
            values.shape[1],
            grad.stride(1),
            rule=rule,
            **settings,
        )
    return grad_values, grad_logits
