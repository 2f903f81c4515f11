"""Kernels timed alone, for the training benchmark: each next to what it replaces."""

from collections.abc import Iterator

import torch

from lightbert.bench.kernel_cases import OPS, SIZES, Size
from lightbert.bench.kernels import SETS, necessary_bytes, prepared, time_variant, variants
from lightbert.bench.training_targets import Figure

_SHORT, _LONG = (next(size for size in SIZES if size.name == name) for name in ("small 1024x128", "small 128x512"))


def kernel_figures(bandwidth: float) -> tuple[Figure, ...]:
    """Time the dynamic convolution next to transformers' and composite attention next to plain attention.

    bandwidth: bytes per second of a copy.
    """
    return (*_convolution(_SHORT, bandwidth), *_attention(_SHORT), *_attention(_LONG))


def _convolution(size: Size, bandwidth: float) -> Iterator[Figure]:
    op, inputs = OPS["dynamic_conv"]
    times = _times("dynamic_conv", size, ("triton", "unfold eager", "unfold compiled"))
    given = inputs(size)
    with torch.no_grad():
        moved = necessary_bytes(given, op(**given))[1]
    ours = times["triton"][1]
    name = f"dynamic convolution {_shape(size)}, forward and backward"
    yield Figure(f"time of transformers' / {name}", times["unfold eager"][1] / ours, "", "at least", 5.0)
    yield Figure(f"time of transformers', compiled / {name}", times["unfold compiled"][1] / ours, "", "at least", 5.0)
    yield Figure(f"{name}, of the copy bandwidth", moved / (ours / 1e6) / bandwidth, "", "at least", 0.6)


def _attention(size: Size) -> Iterator[Figure]:
    times = _times("relative_attention", size, ("triton", "without bias"))
    (forward, both), (plain_forward, plain_both) = times["triton"], times["without bias"]
    name = f"time of composite / plain attention {_shape(size)}"
    yield Figure(f"{name}, forward", forward / plain_forward, "", "at most", 1.3)
    yield Figure(f"{name}, backward", (both - forward) / (plain_both - plain_forward), "", "at most", 1.5)


def _times(name: str, size: Size, wanted: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Microseconds of the forward pass, and of both passes, of some implementations of an op."""
    op, inputs = OPS[name]
    sets = [inputs(size) for _ in range(SETS)]
    return {
        each: time_variant(implementation, prepared(name, each, sets))
        for each, implementation in variants(name, op)
        if each in wanted
    }


def _shape(size: Size) -> str:
    return f"{size.batch}×{size.tokens}"
