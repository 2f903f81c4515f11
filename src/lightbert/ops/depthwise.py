"""Depthwise convolution over tokens: one fixed kernel per channel."""

from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.documents import neighbours
from lightbert.ops.operators import operator


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None = None, texts: Tensor | None = None) -> Tensor:
    """Convolve x [B, T, D] with weight [D, K] and add bias [D] -> [B, T, D].

    Tap j of token t reads token t + j - K//2. Taps outside the row, in the padding or in another text read zeros;
    ``texts`` [B, T] is described in :mod:`lightbert.ops.documents`.
    """
    channels, kernel = weight.shape
    if x.shape[-1] != channels:
        raise InputError(f"x must have {channels} channels, as the weight, got {x.shape[-1]}")
    x = as_autocast(x)
    if use_triton("depthwise", x, fits=kernel <= 17 and kernel % 2 == 1):
        return depthwise_operator(x, weight, bias, texts)[0]
    # A strided column of the weight would prevent vectorization on CPUs.
    taps = weight.to(x.dtype).t().contiguous()  # [K, D]
    first, *others = taps.unbind()
    read = neighbours(x, kernel, texts)
    mixed = next(read) * first
    for tap in others:
        # In place is safe: the backward pass doesn't use the sum.
        mixed.addcmul_(next(read), tap)
    return mixed if bias is None else mixed.add_(bias.to(x.dtype))


@operator(
    "depthwise(Tensor x, Tensor weight, Tensor? bias, Tensor? texts) -> (Tensor, Tensor)",
    fake=lambda x, weight, bias, texts: (x.new_empty(x.shape), weight.new_empty(weight.shape[::-1])),
)
def depthwise_operator(x: Tensor, weight: Tensor, bias: Tensor | None, texts: Tensor | None) -> tuple[Tensor, Tensor]:
    """See `depthwise`; also the weight as the backward pass reads it."""
    taps_first = kernels.depthwise.put_taps_first(weight)
    return kernels.depthwise.forward(x, taps_first, bias, texts), taps_first


def _fake_backward(grad: Tensor, x: Tensor, taps_first: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor, Tensor]:
    of_weight = taps_first.new_empty(taps_first.shape[::-1])
    return x.new_empty(x.shape), of_weight, of_weight.new_empty(len(of_weight), dtype=torch.float32)


@operator(
    "depthwise_backward(Tensor grad, Tensor x, Tensor taps_first, Tensor? texts, Tensor? more=None,"
    " Tensor? and_more=None) -> (Tensor, Tensor, Tensor)",
    fake=_fake_backward,
)
def depthwise_backward_operator(
    grad: Tensor,
    x: Tensor,
    taps_first: Tensor,
    texts: Tensor | None,
    more: Tensor | None = None,
    and_more: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias; ``more`` and ``and_more`` are added to the first one."""
    return kernels.depthwise.backward(grad, x, taps_first, texts, more, and_more)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, _, bias, texts = inputs
    ctx.save_for_backward(x, output[1], texts)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.bias_type = None if bias is None else bias.dtype


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> Any:
    of_x, of_weight, of_bias = depthwise_backward_operator(grad, *ctx.saved_tensors)
    return of_x, of_weight, None if ctx.bias_type is None else of_bias.to(ctx.bias_type), None


depthwise_operator.register_autograd(_gradients, setup_context=_keep)
