"""Bytes of a training step that `bench.traffic` leaves out: those of matrix products, and what is not fused.

A matrix product reads two matrices and writes one, in bfloat16. Weights are small next to activations and not counted.
"""

from functools import singledispatch

from torch import nn

from lightbert.bench.traffic import HALF, activation_passes, passes
from lightbert.nn.attention import SelfAttention
from lightbert.nn.convolution import DynamicConvolution
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.heads import MaskedLanguage
from lightbert.nn.mixed import MixedAttention
from lightbert.nn.projections import GroupedLinear

LARGE = 2**27
"""From this number of elements on, the activations of a feed-forward are computed again (`nn.projections`)."""
_PRODUCTS = 3
"""Output, gradient of the input, gradient of the weight: each reads or writes the channels of both sides once."""


@singledispatch
def product_passes(part: nn.Module) -> int:
    """Channels of a token that the matrix products of a module read or write; the sum of its children."""
    return sum(product_passes(child) for child in part.children())


@product_passes.register
def _encoder(part: Encoder) -> int:
    return product_passes(part.embeddings) + product_passes(part.blocks)


@product_passes.register
def _linear(part: nn.Linear) -> int:
    return _PRODUCTS * (part.in_features + part.out_features)


@product_passes.register
def _grouped(part: GroupedLinear) -> int:
    groups, inputs, outputs = part.weight.shape
    return _PRODUCTS * groups * (inputs + outputs)


@product_passes.register(SelfAttention)
@product_passes.register(MixedAttention)
def _attention(part: SelfAttention | MixedAttention) -> int:
    # One product for all streams reads the input once; the scores stay on the chip.
    streams = [part.query, part.key]
    if part.value_width is None:
        streams.append(part.value)
        if isinstance(part, MixedAttention) and isinstance(part.convolution, DynamicConvolution):
            streams.append(part.convolution.value)
    separate = sum(product_passes(child) for child in part.children())
    return separate - _PRODUCTS * sum(stream.in_features for stream in streams[1:])


@product_passes.register
def _masked_language(part: MaskedLanguage) -> int:
    return product_passes(part.transform) + _PRODUCTS * (part.transform.out_features + part.bias.numel())


def product_bytes(part: nn.Module, tokens: int) -> int:
    """Bytes that the matrix products of a module read and write, forward and backward; an encoder without heads."""
    return HALF * tokens * product_passes(part)


def unfused_bytes(encoder: nn.Module, tokens: int) -> int:
    """Bytes of feed-forwards beyond those of one pass in bfloat16.

    Large activations are written a second time. Grouped layers add their bias in float32, so that the activation and
    the norm of a grouped feed-forward read and write twice the bytes.
    """
    total = 0
    for part in encoder.modules():
        if isinstance(part, FeedForward):
            inner = part.up.get_parameter("bias").numel()
            if isinstance(part.up, GroupedLinear):
                total += HALF * tokens * (activation_passes(inner) + passes(part.norm))
            elif tokens * inner >= LARGE:
                total += HALF * tokens * inner
    return total
