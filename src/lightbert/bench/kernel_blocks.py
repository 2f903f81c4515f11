"""Search over block sizes of the kernels, for `bench.kernels --blocks`."""

from collections.abc import Callable
from functools import partial

import torch

from lightbert.bench.gpu_timing import microseconds
from lightbert.bench.kernel_cases import (
    Size,
    attention_inputs,
    depthwise_inputs,
    gelu_inputs,
    mixed_inputs,
    norm_inputs,
)
from lightbert.bench.vocabulary_blocks import try_tiles

DEPTHWISE_FORWARD = (
    (16, 4, 64, 4),
    (16, 2, 64, 2),
    (16, 8, 64, 8),
    (16, 4, 128, 4),
    (16, 2, 128, 2),
    (32, 4, 64, 4),
    (8, 4, 128, 4),
)
"""(tokens of a walk, walks, channels, warps)."""
DEPTHWISE_BACKWARD = (
    (16, 2, 64, 2, 128, 1024),
    (16, 2, 64, 2, 128, 2048),
    (16, 4, 64, 4, 128, 512),
    (16, 4, 64, 4, 128, 1024),
    (16, 4, 64, 4, 168, 512),
    (16, 8, 64, 8, 128, 512),
    (16, 8, 32, 4, 128, 1024),
    (16, 4, 128, 8, 128, 512),
    (32, 4, 64, 4, 128, 512),
)
"""(tokens of a walk, walks, channels, warps, registers, programs)."""
SPAN_FORWARD = (
    (64, 64, 4, 128, 2),
    (64, 64, 4, None, 3),
    (64, 64, 4, None, 1),
    (32, 64, 4, 128, 2),
    (128, 64, 8, 128, 2),
    (128, 128, 8, None, 1),
)
"""(tokens, channels, warps, registers, stages), for the convolution heads."""
SPAN_BACKWARD = (
    (32, 8, 128, 256),
    (32, 8, 128, 512),
    (32, 8, None, 256),
    (32, 4, None, 512),
    (16, 4, 128, 512),
    (16, 4, 128, 256),
    (16, 2, None, 1024),
    (64, 8, None, 256),
)
"""(tokens, warps, registers, programs)."""
PRODUCT_BACKWARD = (
    (64, 64, 4, 168, 256),
    (64, 64, 4, 168, 512),
    (64, 64, 4, 128, 512),
    (128, 64, 4, None, 512),
    (128, 64, 4, None, 256),
    (128, 64, 8, 128, 256),
    (64, 128, 4, None, 512),
    (128, 128, 8, None, 256),
)
"""(tokens, channels, warps, registers, programs), for the gradients of wide heads."""
ATTENTION_FORWARD = (
    (64, 64, 4, 2, 128),
    (128, 64, 8, 3, 128),
    (64, 64, 4, 3, 128),
    (64, 32, 4, 3),
    (64, 64, 4, 2, 168),
)
"""(queries, keys, warps, stages, registers), for long rows."""
ATTENTION_ROW_FORWARD = ((64, 128, 4, 1), (64, 128, 4, 1, 128), (64, 128, 4, 1, 168), (128, 128, 4, 1, 168))
"""The same, for the kernels with one program per row."""
ATTENTION_BACKWARD = ((128, 128, 8, 1), (128, 128, 8, 1, 224), (128, 128, 8, 1, 168), (128, 128, 16, 1))
NORM_FORWARD = ((512, 1), (1024, 1), (1024, 2), (1024, 4), (2048, 2), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
"""(elements, warps)."""
NORM_BACKWARD = (
    (2048, 4, 1, None, 512),
    (2048, 4, 1, None, 1024),
    (2048, 4, 1, None, 2048),
    (2048, 4, 1, 168, 512),
    (2048, 4, 2, None, 512),
    (2048, 4, 3, None, 512),
    (2048, 8, 1, None, 512),
    (2048, 8, 2, None, 512),
    (1024, 4, 1, None, 512),
    (1024, 4, 1, None, 1024),
    (1024, 4, 2, None, 1024),
    (1024, 4, 3, None, 1024),
    (1024, 2, 1, None, 1024),
    (1024, 2, 1, None, 2048),
    (512, 2, 1, None, 2048),
)
"""(elements, warps, stages, registers, programs)."""
GELU_FORWARD = ((4, 2), (4, 4), (8, 4), (8, 8), (16, 4), (16, 8), (32, 8))
"""(tokens, warps)."""
GELU_BACKWARD = (
    (8, 4, 1, None, 512),
    (8, 4, 1, 96, 512),
    (8, 4, 1, 96, 1024),
    (8, 4, 1, 80, 1024),
    (8, 4, 2, 64, 1024),
    (8, 4, 3, 64, 1024),
    (8, 4, 3, 64, 2048),
    (8, 8, 1, 64, 512),
    (8, 8, 2, 48, 512),
    (4, 4, 1, None, 1024),
    (4, 4, 1, 56, 1024),
    (4, 4, 1, 64, 1024),
    (4, 4, 1, 64, 2048),
    (4, 4, 1, 64, 4096),
    (4, 4, 2, 48, 1024),
    (4, 4, 3, 48, 1024),
    (4, 4, 4, 48, 1024),
    (2, 2, 1, 64, 2048),
    (4, 2, 1, 96, 2048),
)
"""(tokens, warps, stages, registers, programs)."""
Times = dict[str, tuple[float, float]]


def try_blocks(size: Size, ops: str = "") -> Times:
    """Measure the microseconds of forward and backward pass for each block size.

    ops: parts of the names of ops, separated by commas.
    """
    searches: dict[str, Callable[[Size], Times]] = {
        "depthwise": _depthwise,
        "mixed_heads": _span,
        "relative_attention": _attention,
        "residual_norm": _norm,
        "residual_norm with dropout": partial(_norm, dropout=0.1),
        "bias_gelu": _gelu,
        "linear_cross_entropy": try_tiles,
    }
    found: Times = {}
    for op, search in searches.items():
        if any(word in op for word in ops.split(",")):
            times = search(size)
            for name, (forward, backward) in times.items():
                print(f"{name:50} {forward:9.1f} {backward:9.1f} µs", flush=True)
            found |= times
    return found


def _depthwise(size: Size) -> Times:
    from lightbert.ops.depthwise import triton as kernel

    given = [[tensor.detach() for tensor in depthwise_inputs(size).values()] for _ in range(3)]
    sets = [(x, kernel.put_taps_first(weight)) for x, weight in given]
    found = {}
    for walk, walks, channels, warps in DEPTHWISE_FORWARD:
        chosen = {"walk": walk, "walks": walks, "block_channels": channels, "warps": warps}
        forward = [partial(kernel.forward, x, weight, None, None, **chosen) for x, weight in sets]
        found[f"depthwise forward {walk}×{walks}×{channels} w{warps}"] = (microseconds(forward), 0.0)
    for walk, walks, channels, warps, registers, programs in DEPTHWISE_BACKWARD:
        sizes = partial(kernel.backward, walk=walk, walks=walks, block_channels=channels)
        chosen_backward = partial(sizes, warps=warps, registers=registers, programs=programs)
        backward = [partial(chosen_backward, torch.randn_like(x), x, weight, None) for x, weight in sets]
        name = f"depthwise backward {walk}×{walks}×{channels} w{warps} r{registers} p{programs}"
        found[name] = (0.0, microseconds(backward))
    return found


def _span(size: Size) -> Times:
    from lightbert.ops.mixed_heads import triton as kernel
    from lightbert.ops.mixed_heads.forward import triton as span_forward
    from lightbert.ops.mixed_heads.product import triton as product

    sets, values = [], []
    for _ in range(3):
        streams, _, *given = (tensor.detach() for tensor in mixed_inputs(size).values())
        sets.append((streams.chunk(4, dim=-1)[0], *given))
        values.append(streams.chunk(4, dim=-1)[3])
    found = {}
    for sizes in SPAN_FORWARD:
        convolve = partial(span_forward.convolve, sizes=span_forward.Sizes(*sizes))
        forward = [
            partial(convolve, *each, value, None, size.heads, size.taps, torch.empty_like(value))
            for each, value in zip(sets, values, strict=True)
        ]
        found[f"mixed_heads, convolution forward {sizes}"] = (microseconds(forward), 0.0)
    grads = [torch.randn(*each[0].shape[:2], len(each[3])).to(each[0]) for each in sets]
    of_queries = [torch.zeros_like(each[0]) for each in sets]
    if kernel.is_narrow(sets[0][3]):
        chosen = [(str(each), partial(kernel.span_gradients, sizes=kernel.Sizes(*each))) for each in SPAN_BACKWARD]
    else:
        wide = product.product_gradients
        chosen = [(str(each), partial(wide, sizes=product.Sizes(*each))) for each in PRODUCT_BACKWARD]
    for numbers, gradients in chosen:
        backward = [
            partial(gradients, grad, *each[:4], of_query)
            for grad, each, of_query in zip(grads, sets, of_queries, strict=True)
        ]
        found[f"mixed_heads, kernel layer backward {numbers}"] = (0.0, microseconds(backward))
    return found


def _attention(size: Size) -> Times:
    from lightbert.ops.relative_attention import calls as of_attention
    from lightbert.ops.relative_attention import launch

    calls, grads, results = [], [], []
    for _ in range(3):
        query, key, value, weights = (tensor.detach() for tensor in attention_inputs(size).values())
        n_heads = query.shape[1]
        query, key, value = (heads.transpose(1, 2).flatten(2) for heads in (query, key, value))
        calls.append(
            of_attention.prepare(query, key, value, weights, None, None, None, n_heads, clamp=True, dropout=0.0)
        )
        grads.append(torch.randn_like(query))
        results.append(launch.forward(calls[-1]))
    found = {}
    for numbers in ATTENTION_FORWARD if calls[0].row_forward_blocks is None else ATTENTION_ROW_FORWARD:
        forward = [partial(launch.forward, call, blocks=of_attention.Blocks(*numbers)) for call in calls]
        found[f"relative_attention forward {numbers}"] = (microseconds(forward), 0.0)
    for numbers in ATTENTION_BACKWARD:
        backward = [
            partial(launch.backward, call, grad, *result, row_blocks=of_attention.Blocks(*numbers))
            for call, grad, result in zip(calls, grads, results, strict=True)
        ]
        found[f"relative_attention backward {numbers}"] = (0.0, microseconds(backward))
    return found


def _norm(size: Size, dropout: float = 0.0) -> Times:
    from lightbert.ops.residual_norm import triton as kernel

    sets = [[tensor.detach() for tensor in norm_inputs(size).values()] for _ in range(3)]
    seed = torch.zeros(1, dtype=torch.int64, device=sets[0][0].device) if dropout else None
    results = [
        kernel.forward(x, change, weight, bias, 1e-12, seed, dropout, change_bias)
        for x, change, weight, bias, change_bias in sets
    ]
    title, found = f"residual_norm, dropout {dropout}", {}
    for tile, warps in NORM_FORWARD:
        forward = [
            partial(kernel.forward, x, change, weight, bias, 1e-12, seed, dropout, change_bias, tile=tile, warps=warps)
            for x, change, weight, bias, change_bias in sets
        ]
        found[f"{title}, forward {tile} w{warps}"] = (microseconds(forward), 0.0)
    for tile, warps, stages, registers, programs in NORM_BACKWARD:
        chosen = partial(kernel.backward, tile=tile, warps=warps, stages=stages, registers=registers, programs=programs)
        backward = [
            partial(chosen, out, x, change, weight, mean, scale, seed, dropout, change_bias)
            for (x, change, weight, _, change_bias), (out, mean, scale) in zip(sets, results, strict=True)
        ]
        found[f"{title}, backward {tile} w{warps} s{stages} r{registers} p{programs}"] = (0.0, microseconds(backward))
    return found


def _gelu(size: Size) -> Times:
    from lightbert.ops.bias_gelu import triton as kernel

    sets = [[tensor.detach() for tensor in gelu_inputs(size).values()] for _ in range(3)]
    grads = [torch.randn_like(x) for x, _ in sets]
    found = {}
    for tokens, warps in GELU_FORWARD:
        forward = [partial(kernel.forward, x, bias, block_tokens=tokens, warps=warps) for x, bias in sets]
        found[f"bias_gelu forward {tokens} w{warps}"] = (microseconds(forward), 0.0)
    for tokens, warps, stages, registers, programs in GELU_BACKWARD:
        chosen = partial(
            kernel.backward, block_tokens=tokens, warps=warps, stages=stages, registers=registers, programs=programs
        )
        backward = [partial(chosen, grad, x, bias) for grad, (x, bias) in zip(grads, sets, strict=True)]
        found[f"bias_gelu backward {tokens} w{warps} s{stages} r{registers} p{programs}"] = (
            0.0,
            microseconds(backward),
        )
    return found
