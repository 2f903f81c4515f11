"""The matrix products of linear layers, by shape: their FLOPs, and the bytes that they read and write.

Each layer has three: output, gradient of the input, gradient of the weight. All have the same FLOPs, and each reads or
writes the channels of both sides once, in bfloat16. Weights are small next to activations and not counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

from torch import nn

from lightbert.bench.traffic import HALF
from lightbert.nn.attention import SelfAttention
from lightbert.nn.convolution import DynamicConvolution
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import MaskedLanguage
from lightbert.nn.mixed import MixedAttention
from lightbert.nn.projections import GroupedLinear

_PRODUCTS = 3


class Products(NamedTuple):
    """What the three products of a layer need."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Shape:
    """A linear layer, in independent groups."""

    inputs: int
    """Of one group."""
    outputs: int
    groups: int = 1

    def products(self, tokens: int) -> Products:
        """Its three products."""
        flops = _PRODUCTS * 2 * tokens * self.groups * self.inputs * self.outputs
        return Products(flops, _PRODUCTS * HALF * tokens * self.groups * (self.inputs + self.outputs))


@singledispatch
def shapes(part: nn.Module) -> Iterator[Shape]:
    """The linear layers of a module as a GPU computes them; those of an encoder without heads."""
    for child in part.children():
        yield from shapes(child)


@shapes.register
def _encoder(part: Encoder) -> Iterator[Shape]:
    yield from shapes(part.embeddings)
    yield from shapes(part.blocks)


@shapes.register
def _linear(part: nn.Linear) -> Iterator[Shape]:
    yield Shape(part.in_features, part.out_features)


@shapes.register
def _grouped(part: GroupedLinear) -> Iterator[Shape]:
    groups, inputs, outputs = part.weight.shape
    yield Shape(inputs, outputs, groups)


@shapes.register(SelfAttention)
@shapes.register(MixedAttention)
def _attention(part: SelfAttention | MixedAttention) -> Iterator[Shape]:
    # All streams of one input are one product.
    streams = [part.query, part.key]
    if part.value_width is None:
        streams.append(part.value)
        if isinstance(part, MixedAttention) and isinstance(part.convolution, DynamicConvolution):
            streams.append(part.convolution.value)
    yield Shape(part.width, sum(stream.out_features for stream in streams))
    for layer in part.modules():
        if isinstance(layer, nn.Linear) and not any(layer is stream for stream in streams):
            yield Shape(layer.in_features, layer.out_features)


@shapes.register
def _masked_language(part: MaskedLanguage) -> Iterator[Shape]:
    yield from shapes(part.transform)
    yield Shape(part.transform.out_features, part.bias.numel())
