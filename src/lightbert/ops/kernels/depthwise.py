"""Depthwise convolution on a GPU: a thread owns some channels and computes several consecutive tokens of a row.

A thread reads each token of a run (see `lightbert.ops.kernels.tiles`), and K//2 more on both sides, once and converts
it once; all taps then read registers. The backward pass reads the output's gradient in this way and the input at its
own place only, and computes all gradients from that. The gradients of weight and bias are summed in two stages, per
program and then over programs, in a fixed order. Strides are compile-time constants, so that they are part of the
instructions.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels.tiles import (
    count_programs,
    first_tokens,
    flat,
    has_whole_runs,
    in_row,
    same_text,
    steps_per_program,
    text_rule,
)

FORWARD = {"run": 16, "runs": 4, "block_channels": 64, "warps": 4}
BACKWARD = {"run": 16, "runs": 2, "block_channels": 64, "warps": 2, "programs": 1024}
_REGISTERS, _FEW_TAPS = 128, 9
"""The limit per thread in the backward pass of kernels with few taps, so that more programs fit on a processor."""


@triton.jit
def _factors(taps_first, channel, exists, channels, taps: tl.constexpr, runs: tl.constexpr):
    """The weights of each tap, read in the shape of the tokens: then they need not move between threads."""
    shape: tl.constexpr = (runs, channel.shape[1])
    factors, exists = (), tl.broadcast_to(exists, shape)
    for tap in tl.static_range(taps):
        place = tl.broadcast_to(taps_first + tap * channels + channel, shape)
        factors = factors + (tl.load(place, mask=exists, other=0.0).to(tl.float32),)
    return factors


@triton.jit(do_not_specialize=["rows", "row_tokens"])
def _depthwise_forward_kernel(
    x,
    taps_first,
    bias,
    texts,
    out,
    rows,
    row_tokens,
    channels: tl.constexpr,
    x_stride: tl.constexpr,
    taps: tl.constexpr,
    rule: tl.constexpr,
    whole: tl.constexpr,
    has_bias: tl.constexpr,
    run: tl.constexpr,
    runs: tl.constexpr,
    block_channels: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)[None, :]
    exists = channel < channels
    factors = _factors(taps_first, channel, exists, channels, taps, runs)
    index = (tl.program_id(0) // parts) * runs + tl.arange(0, runs)[:, None]
    token, place = first_tokens(index, rows, row_tokens, run)

    source, values, numbers = x + (token - radius) * x_stride + channel, (), ()
    for step in tl.static_range(run + 2 * radius):
        here = in_row(place, step - radius, row_tokens, run, whole)
        if rule > 0:
            number = tl.load(texts + token + (step - radius), mask=here, other=0)
            numbers = numbers + (number,)
            here = here & (number != 0)
        values = values + (tl.load(source, mask=here & exists, other=0.0).to(tl.float32),)
        source += x_stride

    target = out + token * channels + channel
    for step in tl.static_range(run):
        mixed = tl.zeros((runs, block_channels), tl.float32)
        if has_bias:
            mixed += tl.load(bias + channel, mask=exists, other=0.0).to(tl.float32)
        for tap in tl.static_range(taps):
            value = values[step + tap]  # type: ignore[var-annotated]
            if rule > 1:
                value = tl.where(same_text(numbers[step + radius], numbers[step + tap]), value, 0.0)
            mixed += value * factors[tap]
        here = in_row(place, step, row_tokens, run, whole)
        tl.store(target, mixed.to(out.dtype.element_ty), mask=here & exists)
        target += channels


@triton.jit(do_not_specialize=["rows", "row_tokens"])
def _depthwise_backward_kernel(
    grad,
    x,
    taps_first,
    texts,
    more,
    and_more,
    grad_x,
    partial,
    rows,
    row_tokens,
    channels: tl.constexpr,
    grad_stride: tl.constexpr,
    x_stride: tl.constexpr,
    taps: tl.constexpr,
    rule: tl.constexpr,
    whole: tl.constexpr,
    run: tl.constexpr,
    runs: tl.constexpr,
    steps: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Write the gradient of x, and this program's sums for each tap's weight and the bias: [taps + 1, channels].

    Tap j of token s - (j - radius) read token s, so the gradient is read with the taps in reverse order.
    """
    radius: tl.constexpr = taps // 2
    parts = tl.cdiv(channels, block_channels)
    program = tl.program_id(0) // parts
    channel = (tl.program_id(0) % parts) * block_channels + tl.arange(0, block_channels)[None, :]
    exists = channel < channels

    factors, sums = _factors(taps_first, channel, exists, channels, taps, runs), ()
    for _ in tl.static_range(taps + 1):
        sums = sums + (tl.zeros((runs, block_channels), tl.float32),)
    for turn in range(steps):
        index = (program * steps + turn) * runs + tl.arange(0, runs)[:, None]
        token, place = first_tokens(index, rows, row_tokens, run)
        source, changes, numbers = grad + (token - radius) * grad_stride + channel, (), ()
        for step in tl.static_range(run + 2 * radius):
            here = in_row(place, step - radius, row_tokens, run, whole)
            if rule > 0:
                numbers = numbers + (tl.load(texts + token + (step - radius), mask=here, other=0),)
            changes = changes + (tl.load(source, mask=here & exists, other=0.0).to(tl.float32),)
            source += grad_stride

        # All loads come before the first store, which the compiler would not move them across.
        source, target = x + token * x_stride + channel, token * channels + channel
        values, others, and_others = (), (), ()
        for step in tl.static_range(run):
            here = in_row(place, step, row_tokens, run, whole)
            is_read = here & exists
            if rule > 0:
                is_read = is_read & (numbers[step + radius] != 0)
            values = values + (tl.load(source + step * x_stride, mask=is_read, other=0.0),)
            if more is not None:
                others = others + (tl.load(more + target + step * channels, mask=here & exists, other=0.0),)
            if and_more is not None:
                and_others = and_others + (tl.load(and_more + target + step * channels, mask=here & exists, other=0.0),)

        for step in tl.static_range(run):
            here = in_row(place, step, row_tokens, run, whole)
            value = tl.cast(values[step], tl.float32)
            of_x, added = tl.zeros((runs, block_channels), tl.float32), ()
            for tap in tl.static_range(taps):
                change = changes[step + 2 * radius - tap]  # type: ignore[var-annotated]
                if rule > 1:
                    same = same_text(numbers[step + radius], numbers[step + 2 * radius - tap])
                    change = tl.where(same, change, 0.0)
                of_x += change * factors[tap]
                added = added + (sums[tap] + change * value,)
            sums = added + (sums[taps] + changes[step + radius],)
            if rule == 1:
                of_x = tl.where(numbers[step + radius] != 0, of_x, 0.0)
            if more is not None:
                of_x += others[step].to(tl.float32)
            if and_more is not None:
                of_x += and_others[step].to(tl.float32)
            tl.store(grad_x + target + step * channels, of_x.to(grad_x.dtype.element_ty), mask=here & exists)

    result = partial + program.to(tl.int64) * (taps + 1) * channels + channel
    for tap in tl.static_range(taps + 1):
        tl.store(result + tap * channels, tl.sum(sums[tap], axis=0, keep_dims=True), mask=exists)


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
    # Unrolled, so that all loads can start at once.
    for index in tl.static_range(rounds):
        program = index * lanes + tl.arange(0, lanes)
        source = partial + program.to(tl.int64)[:, None] * ((taps + 1) * channels) + entry[None, :]
        total += tl.load(source, mask=(program < programs)[:, None] & exists[None, :], other=0.0)
    summed = tl.sum(total, axis=0)
    tap, channel = entry // channels, entry % channels
    tl.store(of_weight + channel * taps + tap, summed.to(of_weight.dtype.element_ty), mask=exists & (tap < taps))
    tl.store(of_bias + channel, summed, mask=exists & (tap == taps))


def put_taps_first(weight: Tensor) -> Tensor:
    """Copy a weight [D, K] to [K, D], as the kernels read it: a program reads consecutive channels of a tap."""
    return weight.t().clone(memory_format=torch.contiguous_format)


def forward(
    x: Tensor,
    taps_first: Tensor,
    bias: Tensor | None,
    texts: Tensor | None,
    *,
    run: int = FORWARD["run"],
    runs: int = FORWARD["runs"],
    block_channels: int = FORWARD["block_channels"],
    warps: int = FORWARD["warps"],
) -> Tensor:
    """The convolution, by blocks of a chosen size; taps_first: the weight, see `put_taps_first`."""
    x, taps = flat(x), len(taps_first)
    texts, rule = text_rule(texts)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        batch, tokens, channels = x.shape
        _depthwise_forward_kernel[(count_programs(x, run, runs) * triton.cdiv(channels, block_channels),)](
            *(x, taps_first, None if bias is None else bias.contiguous(), texts, out),
            *(batch, tokens, channels, x.stride(1)),
            taps=taps,
            rule=rule,
            whole=has_whole_runs(tokens, run, taps),
            has_bias=bias is not None,
            run=run,
            runs=runs,
            block_channels=block_channels,
            num_warps=warps,
            enable_fp_fusion=True,
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    taps_first: Tensor,
    texts: Tensor | None,
    more: Tensor | None = None,
    and_more: Tensor | None = None,
    *,
    run: int = BACKWARD["run"],
    runs: int = BACKWARD["runs"],
    block_channels: int = BACKWARD["block_channels"],
    warps: int = BACKWARD["warps"],
    registers: int | None = None,
    programs: int = BACKWARD["programs"],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight [D, K] and bias, by blocks of a chosen size.

    taps_first: the weight, see `put_taps_first`. more, and_more: other gradients of x, which are added. registers: the
    limit per thread; None for the one that suits the number of taps. programs: the most; each adds up its part of the
    tokens.
    """
    grad, x = flat(grad), flat(x)
    texts, rule = text_rule(texts)
    (batch, tokens, channels), taps = x.shape, len(taps_first)
    parts = triton.cdiv(channels, block_channels)
    steps = steps_per_program(count_programs(x, run, runs) * parts, programs)
    programs = count_programs(x, run, runs * steps)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = torch.empty((programs, taps + 1, channels), dtype=torch.float32, device=x.device)
    of_weight = torch.empty((channels, taps), dtype=taps_first.dtype, device=x.device)
    of_bias = torch.empty(channels, dtype=torch.float32, device=x.device)
    if grad.numel():
        _depthwise_backward_kernel[(programs * parts,)](
            *(grad, x, taps_first, texts),
            *(None if each is None else each.contiguous() for each in (more, and_more)),
            *(grad_x, partial, batch, tokens, channels, grad.stride(1), x.stride(1)),
            taps=taps,
            rule=rule,
            whole=has_whole_runs(tokens, run, taps),
            run=run,
            runs=runs,
            steps=steps,
            block_channels=block_channels,
            num_warps=warps,
            maxnreg=registers or (_REGISTERS if taps <= _FEW_TAPS else None),
            enable_fp_fusion=True,
        )
    if of_weight.numel():
        block, lanes = 32, 32
        _depthwise_combine_kernel[(triton.cdiv((taps + 1) * channels, block),)](
            *(partial, of_weight, of_bias, programs, channels),
            taps=taps,
            block=block,
            lanes=lanes,
            rounds=triton.next_power_of_2(triton.cdiv(programs, lanes)),
            num_warps=8,
            enable_fp_fusion=True,
        )
    return grad_x, of_weight, of_bias
