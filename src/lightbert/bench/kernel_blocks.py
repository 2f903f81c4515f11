"""Search over block sizes of the kernels, for `bench.kernels --blocks`."""

from functools import partial

import torch

from lightbert.bench.gpu_timing import microseconds
from lightbert.bench.kernel_cases import Size, depthwise_inputs, dynamic_inputs

DYNAMIC = ((32, 2), (32, 4), (64, 4), (64, 8), (128, 8))
"""(tokens, warps)."""
DEPTHWISE_FORWARD = (
    (8, 128, 32, 4),
    (4, 128, 32, 4),
    (4, 256, 32, 4),
    (2, 256, 32, 4),
    (4, 256, 64, 4),
    (1, 256, 32, 1),
)
DEPTHWISE_BACKWARD = (
    (4, 128, 32, 4),
    (4, 128, 64, 4),
    (4, 128, 128, 4),
    (4, 128, 32, 8),
    (4, 128, 64, 8),
    (1, 256, 32, 2),
    (1, 256, 64, 2),
    (2, 256, 64, 4),
    (2, 256, 64, 8),
    (2, 128, 64, 2),
)
"""(streams, channels, length, warps)."""

Times = dict[str, tuple[float, float]]


def try_blocks(size: Size) -> Times:
    """Measure the microseconds of forward and backward pass for each block size."""
    found = _dynamic(size) | _depthwise(size)
    for name, (forward, backward) in found.items():
        print(f"{name:40} {forward:9.1f} {backward:9.1f} µs")
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
    for blocks in DEPTHWISE_FORWARD:
        chosen = _named(blocks)
        forward = [partial(kernel.forward, x, weight, None, None, **chosen) for x, weight in sets]
        found[f"depthwise forward {blocks}"] = (microseconds(forward), 0.0)
    for blocks in DEPTHWISE_BACKWARD:
        chosen = _named(blocks)
        backward = [partial(kernel.backward, torch.randn_like(x), x, weight, None, **chosen) for x, weight in sets]
        found[f"depthwise backward {blocks}"] = (0.0, microseconds(backward))
    return found


def _named(blocks: tuple[int, int, int, int]) -> dict[str, int]:
    return dict(zip(("streams", "block_channels", "length", "warps"), blocks, strict=True))
