"""Every choice of the papers as the keys of one flat config; the configs of the papers only change its defaults."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from torch import nn

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.errors import InputError
from lightbert.nn.attention import Mixer, SelfAttention, Terms
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.convolution import (
    ConvolutionHeads,
    DynamicConvolution,
    GatedConvolution,
    SeparableConvolution,
    SpanConvolution,
)
from lightbert.nn.embeddings import Embeddings, TrigramEmbeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.local import LocalAttention
from lightbert.nn.norms import NoNorm, Norm, layer_norm

Convolution = Literal["span", "dynamic", "gated", "conventional", "none"]

RELATIVE = {
    "none": (False, False, False),
    "fixed": (True, False, False),
    "dynamic": (False, True, False),
    "composite": (True, True, False),
    "key": (True, True, True),
}
"""Values of `relative` -> `fixed`, `query_dynamic` and `key_dynamic`."""


@dataclass(frozen=True)
class Architecture:
    """An encoder of any parts of the papers. The defaults are those of BERT-base; a paper's config has its own.

    Embeddings: words of ``narrow`` channels are projected to ``width`` if they differ (ELECTRA); with ``trigrams`` also
    those of the next and previous token are (MobileBERT). ``positions`` = 0 means none, and rows of any length.

    Attention: ``n_heads`` is the number before reduction by γ = ``head_ratio``, by default 2 with convolution heads and
    1 without. ``convolution`` adds as many heads with kernels of ``kernel`` taps (ConvBERT): ``kernels_per_head``
    generates them by Eq. 4, and ``shared_values`` are those of Eq. 5 and 6. ``relative`` is short for the terms of the
    scores, ``fixed``, ``query_dynamic`` and ``key_dynamic``, within ±``radius`` and ``outside`` of it; ``depthwise``
    and ``convolved`` change values and projections (composite attention). ``local`` = "query" or "key" (as released)
    selects the composite paper's version of ConvBERT.

    Blocks: with ``block_width`` > 0 they are narrower or wider inside (MobileBERT, IB-BERT); ``mixer_input`` selects
    what the mixer reads. Dropout then applies to the output projection of each block only, as in the released code.

    ``initial``: the distribution of matrices, truncated at two standard deviations or not (Chang et al.'s code).
    """

    vocab: Dimension = 30522
    positions: OptionalDimension = 512
    segments: Dimension = 2
    narrow: Dimension = 768
    width: Dimension = 768
    depth: Depth = 12
    n_heads: Dimension = 12
    inner: Dimension = 3072
    trigrams: bool = False
    head_ratio: Dimension | None = None
    convolution: Convolution = "none"
    kernel: Dimension = 9
    kernels_per_head: bool = False
    shared_values: bool = False
    relative: Literal["", "none", "fixed", "dynamic", "composite", "key"] = ""
    fixed: bool = False
    query_dynamic: bool = False
    key_dynamic: bool = False
    radius: OptionalDimension = 8
    outside: Literal["clamp", "zero"] = "clamp"
    depthwise: bool = False
    convolved: Literal["", "qk", "v", "qkv"] = ""
    local: Literal["none", "query", "key"] = "none"
    local_kernel: Dimension = 9
    block_width: OptionalDimension = 0
    mixer_input: Literal["narrow", "shared", "wide"] = "shared"
    feedforwards: Dimension = 1
    groups: Dimension = 1
    norm: Literal["none", "layer"] = "layer"
    padding: Literal["masked", "released"] = "masked"
    activation: str = "gelu"
    dropout: PartialShare = 0.1
    attention_dropout: PartialShare = 0.1
    eps: NonNegative = 1e-12
    initial: Literal["truncated", "normal"] = "truncated"

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "mixer": ("relative", "convolution", "local"),
        "attention": ("relative", "convolution", "local"),
        "shell": ("block_width",),
        "embeddings": ("trigrams",),
        "hidden": ("width",),
        "layers": ("depth",),
        "heads": ("n_heads",),
    }

    def __post_init__(self) -> None:
        # The terms alone are the canonical form: configs with the same terms are equal, and `replace` can change one.
        if self.relative in RELATIVE:
            for name, value in zip(("fixed", "query_dynamic", "key_dynamic"), RELATIVE[self.relative], strict=True):
                object.__setattr__(self, name, value)
            object.__setattr__(self, "relative", "")

    def build(self) -> Encoder:
        """Construct the modules; an InputError names the settings that can't be combined."""
        norm = NoNorm if self.norm == "none" else layer_norm(self.eps)
        embeddings = (TrigramEmbeddings if self.trigrams else Embeddings)(
            self.vocab,
            self.narrow,
            self.width,
            positions=self.positions,
            segments=self.segments,
            norm=norm,
            dropout=self.dropout,
        )
        return Encoder(
            embeddings,
            [self._block(norm) for _ in range(self.depth)],
            width=self.width,
            positions=self.positions,
            released_padding=self.padding == "released",
            fp16=self.norm == "layer",
        )

    @property
    def reads_neighbours(self) -> bool:
        """Whether a part besides attention reads other tokens, so that ``padding`` makes a difference."""
        convolved = self.convolution != "none" or self.local != "none" or self.depthwise or bool(self.convolved)
        return convolved or self.trigrams

    @property
    def inside(self) -> int:
        """The width of the feed-forwards and of all heads together."""
        return self.block_width or self.width

    @property
    def reduced_heads(self) -> int:
        """The number of attention heads, and of convolution heads if there are any (ConvBERT §3.3)."""
        return max(1, self.n_heads // (self.head_ratio or (1 if self.convolution == "none" else 2)))

    def _block(self, norm: Norm) -> nn.Module:
        stack = [
            FeedForward(
                self.inside,
                self.inner,
                activation=self.activation,
                norm=norm,
                groups=self.groups,
                dropout=0.0 if self.block_width else self.dropout,
            )
            for _ in range(self.feedforwards)
        ]
        parts: dict[str, Any] = {"norm": norm, "dropout": self.dropout}
        if not self.block_width:
            feedforward = stack[0] if self.feedforwards == 1 else nn.Sequential(*stack)
            return PostNormBlock(self.width, mixer=self.mixer(), feedforward=feedforward, **parts)
        parts |= {"mixer_input": self.mixer_input, "feedforward": nn.Sequential(*stack)}
        return BottleneckBlock(self.width, self.block_width, mixer=self.mixer(), **parts)

    def mixer(self) -> Mixer:
        """Construct the mixer of one block; its unreduced heads have ``inside`` channels in total."""
        reads = self.block_width if self.block_width and self.mixer_input != "wide" else self.width
        value_width = self.width if self.block_width and self.mixer_input == "shared" else None
        if self.inside % self.n_heads:
            inside = f"block_width ({self.inside})" if self.block_width else f"the width, {self.inside}"
            raise InputError(f"n_heads ({self.n_heads}) must divide {inside}")
        terms = Terms(**{entry.name: getattr(self, entry.name) for entry in fields(Terms)})
        streams: dict[str, Any] = {"value_width": value_width, "terms": terms, "dropout": self.attention_dropout}
        if self.local == "none":
            head_width = self.inside // self.n_heads
            convolution = self._convolution(reads, self.reduced_heads * head_width, value_width)
            return SelfAttention(reads, self.reduced_heads, head_width=head_width, convolution=convolution, **streams)
        if self.convolution != "none" or self.reduced_heads != self.n_heads:
            raise InputError(
                f"local = {self.local!r} replaces the convolution heads, so that it requires convolution = 'none' and "
                f"no head_ratio, got {self.convolution!r} and {self.head_ratio}"
            )
        return LocalAttention(reads, self.n_heads, kernel=self.local_kernel, indexed_by=self.local, **streams)

    def _convolution(self, reads: int, inner: int, value_width: int | None) -> ConvolutionHeads | None:
        """The convolution heads of a mixer, with ``inner`` channels, as many as the attention heads."""
        if self.shared_values and self.convolution not in ("span", "dynamic"):
            raise InputError(f"shared_values requires convolution = 'span' or 'dynamic', got {self.convolution!r}")
        if self.kernels_per_head and self.convolution not in ("span", "dynamic", "gated"):
            raise InputError(
                f"kernels_per_head requires convolution = 'span', 'dynamic' or 'gated', got {self.convolution!r}"
            )
        sizes = (reads, inner, self.reduced_heads, self.kernel)
        match self.convolution:
            case "none":
                return None
            case "conventional":
                return SeparableConvolution(value_width or reads, inner, self.kernel)
            case "gated":
                return GatedConvolution(*sizes, per_head=self.kernels_per_head)
        kind = SpanConvolution if self.convolution == "span" else DynamicConvolution
        return kind(*sizes, value_width, per_head=self.kernels_per_head, shares_values=self.shared_values)
