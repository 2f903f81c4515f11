"""The kernels with other block sizes: what `bench.kernels --blocks` tries, to choose the defaults by."""

from functools import partial
from itertools import product

import torch

from lightbert.bench.gpu_timing import microseconds
from lightbert.bench.kernels import Size, depthwise_inputs, dynamic_inputs

DYNAMIC = tuple(product((32, 64, 128), (2, 4, 8)))
"""Tokens, and warps."""
DEPTHWISE = (
    (16, 128, 4),
    (32, 64, 4),
    (32, 128, 4),
    (32, 128, 8),
    (64, 64, 4),
    (64, 64, 8),
    (32, 256, 8),
    (16, 256, 4),
)
"""Tokens, channels, and warps."""


Times = dict[str, tuple[float, float]]


def try_blocks(size: Size) -> Times:
    """Microseconds of the forward and of the backward pass, by block sizes."""
    found = _dynamic(size) | _depthwise(size)
    for name, (forward, backward) in found.items():
        print(f"{name:32} {forward:9.1f} {backward:9.1f} µs")
    return found


def _dynamic(size: Size) -> Times:
    from lightbert.ops.dynamic_conv import triton as kernel

    sets = [[tensor.detach() for tensor in dynamic_inputs(size).values()] for _ in range(3)]
    found = {}
    for block, warps in DYNAMIC:
        chosen = {"block": block, "warps": warps}
        forward = [partial(kernel.forward, values, logits, None, **chosen) for values, logits in sets]
        backward = [
            partial(kernel.backward, torch.randn_like(values), values, logits, None, **chosen)
            for values, logits in sets
        ]
        found[f"dynamic_conv {block} w{warps}"] = (microseconds(forward), microseconds(backward))
    return found


def _depthwise(size: Size) -> Times:
    from lightbert.ops.depthwise import triton as kernel

    sets = [[tensor.detach() for tensor in depthwise_inputs(size).values()] for _ in range(3)]
    found = {}
    for (tokens, channels, warps), steps in product(DEPTHWISE, (2, 8)):
        chosen = {"block_tokens": tokens, "block_channels": channels, "warps": warps}
        forward = [partial(kernel.forward, x, weight, None, None, **chosen) for x, weight in sets]
        backward = [
            partial(kernel.backward, torch.randn_like(x), x, weight, None, steps=steps, **chosen) for x, weight in sets
        ]
        name = f"depthwise {tokens}x{channels} w{warps} s{steps}"
        found[name] = (microseconds(forward), microseconds(backward))
    return found
