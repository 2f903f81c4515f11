"""Every mixer at a small size, by name, for the tests of their common interface."""

from collections.abc import Callable
from typing import Any

from lightbert.nn.attention import NO_TERMS, Mixer, SelfAttention, Terms
from lightbert.nn.convolution import DynamicConvolution, GatedConvolution, SeparableConvolution, SpanConvolution
from lightbert.nn.local import LocalAttention

WIDTH, HEADS, KERNEL, RADIUS = 16, 4, 5, 2

Make = Callable[..., Mixer]


def _attention(*, relative: Terms = NO_TERMS, **settings: int) -> Make:
    return lambda **streams: SelfAttention(WIDTH, HEADS, terms=relative, **settings, **streams)


def _mixed(kind: type[DynamicConvolution] = SpanConvolution, kernel: int = KERNEL, **settings: Any) -> Make:
    terms = settings.pop("relative", NO_TERMS)

    def make(value_width: int | None = None, dropout: float = 0.0) -> Mixer:
        values = () if kind is GatedConvolution else (value_width,)
        convolution = kind(WIDTH, 8, 2, kernel, *values, **settings)
        streams = {"value_width": value_width, "dropout": dropout}
        return SelfAttention(WIDTH, 2, head_width=4, terms=terms, convolution=convolution, **streams)

    return make


def _conventional(value_width: int | None = None, dropout: float = 0.0) -> Mixer:
    convolution = SeparableConvolution(value_width or WIDTH, 8, KERNEL)
    return SelfAttention(WIDTH, 2, head_width=4, convolution=convolution, value_width=value_width, dropout=dropout)


def _local(**settings: Any) -> Make:
    return lambda **streams: LocalAttention(WIDTH, HEADS, kernel=KERNEL, **settings, **streams)


def _terms(*names: str, **settings: Any) -> Terms:
    return Terms(RADIUS, **dict.fromkeys(names, True), **settings)


COMPOSITE = ("fixed", "query_dynamic")
EVERY = _terms(*COMPOSITE, "key_dynamic", "depthwise", convolved="qkv")

MIXERS: dict[str, Make] = {
    "attention": _attention(),
    "bottleneck attention": lambda **streams: SelfAttention(WIDTH, 2, head_width=4, **streams),
    "inverted attention": _attention(head_width=8),
    "span-based dynamic convolution": _mixed(),
    "dynamic convolution": _mixed(DynamicConvolution),
    "gated dynamic convolution": _mixed(GatedConvolution),
    "conventional convolution": _conventional,
    "span-based dynamic convolution by Eq. 4 to 6": _mixed(per_head=True, shares_values=True),
    "even span-based dynamic convolution": _mixed(kernel=4),
    "span-based dynamic convolution, composite": _mixed(relative=_terms(*COMPOSITE)),
    "dynamic convolution, every term": _mixed(DynamicConvolution, relative=EVERY),
    "composite": _attention(relative=_terms(*COMPOSITE)),
    "composite, zero outside": _attention(relative=_terms(*COMPOSITE, "key_dynamic", outside="zero")),
    "composite, every term": _attention(relative=EVERY),
    "composite, wide heads": _attention(head_width=6, relative=_terms(*COMPOSITE, "depthwise", convolved="v")),
    "fixed": _attention(relative=_terms("fixed")),
    "query-dynamic": _attention(relative=_terms("query_dynamic")),
    "key-dynamic": _attention(relative=_terms("key_dynamic")),
    "depthwise": _attention(relative=_terms("depthwise")),
    "convolved queries and keys": _attention(relative=_terms(convolved="qk")),
    "convolved values": _attention(relative=_terms(convolved="v")),
    "local, by query": _local(),
    "local, by key, composite": _local(indexed_by="key", terms=_terms(*COMPOSITE, "key_dynamic")),
}

OUT_WIDTHS = {"bottleneck attention": 8, "inverted attention": 32, "composite, wide heads": 24}
"""Output widths other than WIDTH."""

CONVOLVES = {name for name in MIXERS if "convol" in name or "local" in name} | {
    "depthwise",
    "composite, every term",
    "composite, wide heads",
}
"""The mixers that depend on the positions of neighbours."""
GENERATES_KERNELS = {name for name in MIXERS if "dynamic convolution" in name or "local" in name}
EXPORTED = (
    "dynamic convolution, every term",
    "conventional convolution",
    "composite, zero outside",
    "local, by key, composite",
)
"""The mixers that the exported models of tests/models don't cover."""
