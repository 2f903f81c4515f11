"""Kernels timed alone, for the training benchmark: each next to what it replaces."""

from dataclasses import dataclass

import torch

from lightbert.bench.kernel_cases import OPS, SIZES, Size
from lightbert.bench.kernels import SETS, necessary_bytes, prepared, time_variant, variants
from lightbert.bench.training_targets import Figure

_SHORT, _LONG = (next(size for size in SIZES if size.name == name) for name in ("small 1024x128", "small 128x512"))


@dataclass(frozen=True)
class KernelPass:
    """The forward or the backward pass of a kernel."""

    what: str
    microseconds: float
    flops: float
    moved: float
    """Bytes that it must read and write."""

    def least(self, rate: float, bandwidth: float) -> tuple[float, float]:
        """The microseconds of its FLOPs and of its bytes at these rates per second; one kernel can overlap both."""
        return 1e6 * self.flops / rate, 1e6 * self.moved / bandwidth


@dataclass(frozen=True)
class KernelsAlone:
    """Figures with their targets, and the passes that they are about."""

    figures: tuple[Figure, ...] = ()
    passes: tuple[KernelPass, ...] = ()

    def __add__(self, other: "KernelsAlone") -> "KernelsAlone":
        return KernelsAlone(self.figures + other.figures, self.passes + other.passes)


def kernels_alone(bandwidth: float) -> KernelsAlone:
    """Time the dynamic convolution next to transformers' and composite attention next to plain attention.

    bandwidth: bytes per second of a copy.
    """
    return _convolution(_SHORT, bandwidth) + _attention(_SHORT) + _attention(_LONG)


def _convolution(size: Size, bandwidth: float) -> KernelsAlone:
    times = _times("dynamic_conv", size, ("triton", "unfold eager", "unfold compiled"))
    forward_bytes, moved = _bytes("dynamic_conv", size)
    forward, ours = times["triton"]
    kernel = f"dynamic convolution {_shape(size)}"
    name, both = f"{kernel}, forward and backward", (f"{kernel}, forward", f"{kernel}, backward")
    share = moved / (ours / 1e6) / bandwidth
    # A multiply-add per tap, and two for the gradients.
    flops = 2.0 * size.batch * size.tokens * size.inner * size.taps
    return KernelsAlone(
        (
            Figure(f"time of transformers' / {name}", times["unfold eager"][1] / ours, "", "at least", 5.0),
            Figure(
                f"time of transformers', compiled / {name}", times["unfold compiled"][1] / ours, "", "at least", 5.0
            ),
            Figure(f"{name}, of the copy bandwidth", share, "", "at least", 0.6, kernels=both),
        ),
        (
            KernelPass(both[0], forward, flops, forward_bytes),
            KernelPass(both[1], ours - forward, 2 * flops, moved - forward_bytes),
        ),
    )


def _attention(size: Size) -> KernelsAlone:
    times = _times("relative_attention", size, ("triton", "without bias"))
    (forward, both), (plain_forward, plain_both) = times["triton"], times["without bias"]
    name, ours = f"time of composite / plain attention {_shape(size)}", f"composite attention {_shape(size)}"
    backward = (both - forward) / (plain_both - plain_forward)
    figures = (
        Figure(f"{name}, forward", forward / plain_forward, "", "at most", 1.3, kernels=(f"{ours}, forward",)),
        Figure(f"{name}, backward", backward, "", "at most", 1.5, kernels=(f"{ours}, backward",)),
    )
    passes: tuple[KernelPass, ...] = ()
    for kind, without in (("composite", ()), ("PyTorch's plain", ("by_query",))):
        first, all_ = times["without bias" if without else "triton"]
        forward_bytes, moved = _bytes("relative_attention", size, without)
        # Two products forward; five backward, which computes the scores again.
        product = 2.0 * size.batch * size.tokens**2 * size.width
        passes += (
            KernelPass(f"{kind} attention {_shape(size)}, forward", first, 2 * product, forward_bytes),
            KernelPass(f"{kind} attention {_shape(size)}, backward", all_ - first, 5 * product, moved - forward_bytes),
        )
    return KernelsAlone(figures, passes)


def _times(name: str, size: Size, wanted: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Microseconds of the forward pass, and of both passes, of some implementations of an op."""
    op, inputs = OPS[name]
    sets = [inputs(size) for _ in range(SETS)]
    return {
        each: time_variant(implementation, prepared(name, each, sets))
        for each, implementation in variants(name, op)
        if each in wanted
    }


def _bytes(name: str, size: Size, without: tuple[str, ...] = ()) -> tuple[int, int]:
    """The necessary bytes of the forward pass, and of both passes, of an op, perhaps without some of its inputs."""
    op, inputs = OPS[name]
    given = inputs(size)
    with torch.no_grad():
        out = op(**given)
    return necessary_bytes({each: tensor for each, tensor in given.items() if each not in without}, out)


def _shape(size: Size) -> str:
    return f"{size.batch}×{size.tokens}"
