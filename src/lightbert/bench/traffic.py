"""Bytes that the memory-bound kernels of a training step read and write, forward and backward.

Each kernel is counted by the passes over its tensors, in bfloat16, as if it were fused with its neighbours: a norm with
residual and dropout, a bias with its activation. `bench.products` counts matrix products.
"""

from functools import singledispatch

from torch import nn

from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import BottleneckBlock
from lightbert.nn.composite import CompositeAttention
from lightbert.nn.convolution import DynamicConvolution
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.local import LocalAttention
from lightbert.nn.mixed import MixedAttention
from lightbert.nn.norms import NoNorm
from lightbert.nn.projections import Depthwise, GroupedLinear

HALF = 2
"""Bytes of a bfloat16."""
LARGE = 2**27
"""From this number of elements on, the activations of a feed-forward are computed again (`nn.projections`)."""
_NORM = 8
"""Forward: read input and residual, write sum and output. Backward: read sum and two gradients, write one."""
_SCALE = 6
"""`NoNorm`, forward: read input and residual, write output. Backward: read residual and gradient, write one."""
_NARROW = 5
"""A feed-forward as one kernel, forward: read, write. Backward: read input and gradient, write a gradient."""
_ACTIVATION = 5
_CONVOLUTION = 6
"""Forward: read, write. Backward: read input and gradient, write a gradient, read once more for the weights."""
_ATTENTION = 12
_LOOKUP = 6
_BIAS = 1
_OPTIMIZER = 36
"""Per parameter, in fp32: weights, gradients and two moments read, all written; the norm."""
_CASTS = 12
"""Per parameter: weights read in fp32 and written in bf16, gradients read in bf16 and written in fp32."""
_LOGITS = 1
"""Cross-entropy writes the gradient of logits; they need not be in memory themselves."""


@singledispatch
def passes(part: nn.Module) -> int:
    """Channels of a token that the memory-bound kernels of a module read or write; the sum of its children."""
    return sum(passes(child) for child in part.children())


@passes.register
def _norm(part: nn.LayerNorm) -> int:
    return _NORM * part.weight.numel()


@passes.register
def _scale(part: NoNorm) -> int:
    return _SCALE * part.weight.numel()


@passes.register
def _bottleneck(part: BottleneckBlock) -> int:
    # Scales without a residual are in the weights of the layers before them.
    in_weights = [norm for norm in (part.enter_norm, part.shared_norm) if isinstance(norm, NoNorm)]
    return sum(passes(child) for child in part.children()) - sum(passes(norm) for norm in in_weights)


@passes.register
def _linear(part: nn.Linear) -> int:
    return _BIAS * part.out_features if part.bias is not None else 0


@passes.register
def _grouped(part: GroupedLinear) -> int:
    return _BIAS * part.bias.numel() if part.bias is not None else 0


@passes.register
def _lookup(part: nn.Embedding) -> int:
    return _LOOKUP * part.embedding_dim


@passes.register
def _depthwise(part: Depthwise) -> int:
    return _CONVOLUTION * part.weight.shape[0]


@passes.register
def _dynamic(part: DynamicConvolution) -> int:
    # The weights of the taps are read and their gradient is written, and so is the product of query and key.
    inside = _CONVOLUTION * part.out_width + 3 * part.n_heads * part.taps + _ACTIVATION * part.out_width
    return inside + sum(passes(child) for child in part.children())


@passes.register
def _feed_forward(part: FeedForward) -> int:
    if isinstance(part.activation, nn.ReLU) and isinstance(part.norm, NoNorm):
        return _NARROW * part.width
    inner = part.up.get_parameter("bias").numel()
    return _ACTIVATION * inner + sum(passes(child) for child in part.children())


@passes.register
def _mixed(part: MixedAttention) -> int:
    return _ATTENTION * part.out_width // 2 + sum(passes(child) for child in part.children())


@passes.register(SelfAttention)
@passes.register(CompositeAttention)
@passes.register(LocalAttention)
def _attention(part: SelfAttention | CompositeAttention | LocalAttention) -> int:
    return _ATTENTION * part.out_width + sum(passes(child) for child in part.children())


def encoder_bytes(encoder: nn.Module, tokens: int) -> int:
    """Bytes of forward and backward pass of an encoder without heads."""
    body = [child for name, child in encoder.named_children() if name != "heads"]
    return HALF * tokens * sum(passes(child) for child in body)


def unfused_bytes(encoder: nn.Module, tokens: int) -> int:
    """Bytes that the feed-forwards of an encoder move beyond `encoder_bytes`: large activations are written twice."""
    dense = (part.up for part in encoder.modules() if isinstance(part, FeedForward) and isinstance(part.up, nn.Linear))
    return HALF * tokens * sum(up.out_features for up in dense if tokens * up.out_features >= LARGE)


def vocabulary_bytes(predictions: int, vocab: int) -> int:
    """Bytes of cross-entropy and sampling over a vocabulary."""
    return HALF * predictions * vocab * _LOGITS


def optimizer_bytes(parameters: int) -> int:
    """Bytes of clipping and AdamW."""
    return _OPTIMIZER * parameters


def cast_bytes(parameters: int) -> int:
    """Bytes of the bf16 copies of the weights and of their gradients."""
    return _CASTS * parameters
