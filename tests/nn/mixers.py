"""Every mixer at a small size, by name, for the tests of their common interface."""

from collections.abc import Callable

from lightbert.nn.attention import Mixer, SelfAttention
from lightbert.nn.composite import CompositeAttention, LocalAttention
from lightbert.nn.convolution import DynamicConvolution, SeparableConvolution, SpanConvolution
from lightbert.nn.mixed import MixedAttention

WIDTH, HEADS, KERNEL, RADIUS = 16, 4, 5, 2

Make = Callable[..., Mixer]


def _mixed(kind: type[DynamicConvolution]) -> Make:
    def make(value_width: int | None = None, dropout: float = 0.0) -> Mixer:
        convolution = kind(WIDTH, 8, 2, KERNEL, value_width)
        return MixedAttention(WIDTH, 2, head_width=4, convolution=convolution, value_width=value_width, dropout=dropout)

    return make


def _conventional(value_width: int | None = None, dropout: float = 0.0) -> Mixer:
    convolution = SeparableConvolution(value_width or WIDTH, 8, KERNEL)
    return MixedAttention(WIDTH, 2, head_width=4, convolution=convolution, value_width=value_width, dropout=dropout)


def _composite(**terms: object) -> Make:
    return lambda **streams: CompositeAttention(WIDTH, HEADS, radius=RADIUS, **terms, **streams)


def _only(**terms: object) -> Make:
    return _composite(fixed=False, query_dynamic=False, **terms)


MIXERS: dict[str, Make] = {
    "attention": lambda **streams: SelfAttention(WIDTH, HEADS, **streams),
    "bottleneck attention": lambda **streams: SelfAttention(WIDTH, 2, head_width=4, **streams),
    "inverted attention": lambda **streams: SelfAttention(WIDTH, HEADS, head_width=8, **streams),
    "span-based dynamic convolution": _mixed(SpanConvolution),
    "dynamic convolution": _mixed(DynamicConvolution),
    "conventional convolution": _conventional,
    "composite": _composite(),
    "composite, zero outside": _composite(key_dynamic=True, outside="zero"),
    "composite, every term": _composite(key_dynamic=True, depthwise=True, convolved="qkv"),
    "composite, wide heads": _composite(head_width=6, depthwise=True, convolved="v"),
    "no term": _only(),
    "fixed": lambda **streams: CompositeAttention(WIDTH, HEADS, radius=RADIUS, query_dynamic=False, **streams),
    "query-dynamic": lambda **streams: CompositeAttention(WIDTH, HEADS, radius=RADIUS, fixed=False, **streams),
    "key-dynamic": _only(key_dynamic=True),
    "depthwise": _only(depthwise=True),
    "convolved queries and keys": _only(convolved="qk"),
    "convolved values": _only(convolved="v"),
    "local, by query": lambda **streams: LocalAttention(WIDTH, HEADS, kernel=KERNEL, **streams),
    "local, by key": lambda **streams: LocalAttention(WIDTH, HEADS, kernel=KERNEL, indexed_by="key", **streams),
}

OUT_WIDTHS = {"bottleneck attention": 8, "inverted attention": 32, "composite, wide heads": 24}
"""Output widths other than WIDTH."""

CONVOLVES = {name for name in MIXERS if "convol" in name or "local" in name} | {
    "depthwise",
    "composite, every term",
    "composite, wide heads",
}
"""The mixers that depend on the positions of neighbours."""
GENERATES_KERNELS = {"span-based dynamic convolution", "dynamic convolution", "local, by query", "local, by key"}
EXPORTED = ("dynamic convolution", "conventional convolution", "composite, zero outside", "local, by key")
"""The mixers that the exported models of tests/models don't cover."""
