"""Search over tiles of the kernels of linear_cross_entropy, for `bench.kernels --blocks`."""

from functools import partial

import torch

from lightbert.bench.gpu_timing import microseconds
from lightbert.bench.kernel_cases import Size, linear_entropy_inputs

FORWARD = (
    (128, 64, 4, 2, 168),
    (128, 64, 4, 3, 168),
    (128, 64, 8, 2, 80),
    (128, 64, 8, 3, None),
    (64, 64, 4, 2, None),
    (64, 64, 4, 3, None),
    (128, 128, 8, 3, None),
)
"""(positions, entries, warps, stages, registers)."""
BACKWARD = (
    (64, 128, 4, 3, None),
    (64, 128, 8, 2, 128),
    (64, 128, 8, 3, 128),
    (64, 64, 4, 3, None),
    (128, 128, 8, 2, None),
)
"""The same; with the products that follow."""


def try_tiles(size: Size) -> dict[str, tuple[float, float]]:
    """Measure the microseconds of forward and backward pass for each tile."""
    from lightbert.ops.linear_cross_entropy import triton as kernel
    from lightbert.ops.linear_cross_entropy.gradients import triton as gradients

    sets = [[tensor.detach() for tensor in linear_entropy_inputs(size).values()] for _ in range(3)]
    sums = [kernel.forward(*given)[3] for given in sets]  # type: ignore[arg-type]
    grads = [torch.rand_like(each) for each in sums]
    found = {}
    for numbers in FORWARD:
        chosen = partial(kernel.forward, tile=kernel.Tile(*numbers))
        found[f"linear_cross_entropy forward {numbers}"] = (
            microseconds([partial(chosen, *given) for given in sets]),
            0.0,
        )
    for numbers in BACKWARD:
        sizes = partial(gradients.backward, tile=kernel.Tile(*numbers))
        backward = [partial(sizes, grad, *given[:4], each) for grad, given, each in zip(grads, sets, sums, strict=True)]
        found[f"linear_cross_entropy backward {numbers}"] = (0.0, microseconds(backward))
    return found
