"""What the kernels are timed on: sizes of the papers' models, and inputs as their layers give them."""

from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Size:
    """A batch of one of the papers' models: its width, and the channels and heads of its convolution."""

    name: str
    batch: int
    tokens: int
    width: int
    inner: int
    heads: int
    taps: int = 9


SIZES = (
    Size("small 1024x128", 1024, 128, 256, 128, 2),
    Size("small 256x128", 256, 128, 256, 128, 2),
    Size("small 128x512", 128, 512, 256, 128, 2),
    Size("base 256x128", 256, 128, 768, 384, 6),
)


def dynamic_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Values and logits as a model's linear layers give them."""
    values = torch.randn(size.batch, size.tokens, size.inner, device=device, dtype=dtype)
    logits = torch.randn(size.batch, size.tokens, size.heads, size.taps, device=device, dtype=dtype)
    return {"values": values.requires_grad_(), "logits": logits.requires_grad_()}


def depthwise_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """A stream in half precision, and a weight that is not."""
    x = torch.randn(size.batch, size.tokens, size.width, device=device, dtype=dtype)
    weight = torch.randn(size.width, size.taps, device=device)
    return {"x": x.requires_grad_(), "weight": weight.requires_grad_()}
