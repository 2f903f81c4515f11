"""The ops that have kernels, and inputs in the shapes of the papers' models."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.cross_entropy import cross_entropy
from lightbert.ops.depthwise import depthwise
from lightbert.ops.dynamic_conv import dynamic_conv
from lightbert.ops.relative_attention import relative_attention
from lightbert.ops.sampling import sample

Op = Callable[..., Tensor]
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Size:
    """The shapes of a batch of one of the papers' models."""

    name: str
    batch: int
    tokens: int
    width: int
    inner: int
    heads: int
    taps: int = 9
    offsets: int = 17
    vocab: int = 30522

    @property
    def predictions(self) -> int:
        """The number of masked positions."""
        return self.batch * int(0.15 * self.tokens)


SIZES = (
    Size("small 1024x128", 1024, 128, 256, 128, 2),
    Size("small 256x128", 256, 128, 256, 128, 2),
    Size("small 128x512", 128, 512, 256, 128, 2),
    Size("base 256x128", 256, 128, 768, 384, 6),
)


def dynamic_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Values and kernel logits."""
    values = torch.randn(size.batch, size.tokens, size.inner, device=device, dtype=dtype)
    logits = torch.randn(size.batch, size.tokens, size.heads, size.taps, device=device, dtype=dtype)
    return {"values": values.requires_grad_(), "logits": logits.requires_grad_()}


def depthwise_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Activations in half precision, and a float32 weight."""
    x = torch.randn(size.batch, size.tokens, size.width, device=device, dtype=dtype)
    weight = torch.randn(size.width, size.taps, device=device)
    return {"x": x.requires_grad_(), "weight": weight.requires_grad_()}


def attention_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Queries, keys and values of composite attention in heads of 64 channels, and one weight per query and offset."""
    heads = max(1, size.width // 64)
    shape = (size.batch, size.tokens, heads, size.width // heads)
    streams = {name: torch.randn(shape, device=device, dtype=dtype) for name in ("query", "key", "value")}
    weights = torch.randn(size.batch, heads, size.tokens, size.offsets, device=device, dtype=dtype)
    given = {name: stream.transpose(1, 2) for name, stream in streams.items()} | {"by_query": weights}
    return {name: tensor.requires_grad_() for name, tensor in given.items()}


def entropy_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Logits of the masked positions, and their targets."""
    logits = torch.randn(size.predictions, size.vocab, device=device, dtype=dtype)
    targets = torch.randint(0, size.vocab, (size.predictions,), device=device)
    return {"logits": logits.requires_grad_(), "targets": targets}


def sampling_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Logits of the masked positions, and a uniform random number for each."""
    logits = torch.randn(size.predictions, size.vocab, device=device, dtype=dtype)
    return {"logits": logits, "chances": torch.rand(size.predictions, device=device)}


def entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss; the most likely entry is added with weight 0, so that it is computed as well."""
    loss, likely = cross_entropy(logits, targets)
    return loss + 0 * likely


def unbiased(query: Tensor, key: Tensor, value: Tensor, by_query: Tensor) -> Tensor:
    """Attention without the weights, by PyTorch's own kernels: what relative attention is compared with."""
    return F.scaled_dot_product_attention(query, key, value)


def unfolded(values: Tensor, logits: Tensor) -> Tensor:
    """Dynamic convolution as in transformers: K copies of the values, then a matmul per token."""
    batch, tokens, heads, taps = logits.shape
    columns = F.unfold(values.transpose(1, 2).unsqueeze(-1), (taps, 1), padding=(taps // 2, 0))  # [B, C·K, T]
    windows = columns.transpose(1, 2).reshape(batch * tokens * heads, -1, taps)
    weights = torch.softmax(logits.reshape(-1, taps, 1), dim=1)
    return torch.matmul(windows, weights).reshape(batch, tokens, -1)


OPS: dict[str, tuple[Op, Callable[..., Tensors]]] = {
    "dynamic_conv": (dynamic_conv, dynamic_inputs),
    "depthwise": (depthwise, depthwise_inputs),
    "relative_attention": (relative_attention, attention_inputs),
    "cross_entropy": (entropy, entropy_inputs),
    "sampling": (sample, sampling_inputs),
}
