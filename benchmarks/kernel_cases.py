"""The ops that have kernels, and inputs in the shapes of the papers' models."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.bias_gelu import bias_gelu, gelu_linear, gelu_score
from lightbert.ops.cross_entropy import cross_entropy
from lightbert.ops.depthwise import depthwise
from lightbert.ops.dynamic_conv import PADDING, dynamic_conv
from lightbert.ops.embedding import embedding
from lightbert.ops.linear_cross_entropy import linear_cross_entropy
from lightbert.ops.mixed_heads import mixed_heads
from lightbert.ops.relative_attention import relative_attention
from lightbert.ops.relu_feedforward import relu_feedforward
from lightbert.ops.residual_norm import residual_norm
from lightbert.ops.sampling import sample

Op = Callable[..., Tensor]
Tensors = dict[str, Tensor]

TAPS = 9
"""The kernel size of ConvBERT."""
NARROW = 128
"""Channels of the word embeddings of small models."""


@dataclass(frozen=True)
class Size:
    """The shapes of a batch of one of the papers' models."""

    name: str
    batch: int
    tokens: int
    width: int
    inner: int
    heads: int
    taps: int = TAPS
    offsets: int = 17
    vocab: int = 30528
    """Rounded up to a multiple of 64, as the logits in training."""

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


def padded(inputs: Tensors) -> Tensors:
    """The same with padded logits, as the kernel layer returns them on a GPU."""
    return {
        name: F.pad(tensor.detach(), (0, -tensor.shape[-1] % PADDING)).requires_grad_() if name == "logits" else tensor
        for name, tensor in inputs.items()
    }


def convolution(values: Tensor, logits: Tensor, texts: Tensor | None = None) -> Tensor:
    """Dynamic convolution with ConvBERT's taps; the logits may be padded."""
    return dynamic_conv(values, logits, texts, TAPS)


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


def plain_attention_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Queries, keys and values of the attention heads of ConvBERT, and the mask of a batch without padding."""
    shape = (size.batch, size.tokens, size.heads, size.inner // size.heads)
    streams = {name: torch.randn(shape, device=device, dtype=dtype) for name in ("query", "key", "value")}
    given = {name: stream.transpose(1, 2).requires_grad_() for name, stream in streams.items()}
    return given | {"texts": torch.ones(size.batch, size.tokens, dtype=torch.bool, device=device)}


def mixed_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """The streams of both kinds of heads, the span-aware key, the biases of both, and the kernel layer's parameters."""
    rows = size.heads * (size.taps + -size.taps % PADDING)
    shape = (size.batch, size.tokens)
    given = {
        "streams": torch.randn(*shape, 4 * size.inner, device=device, dtype=dtype),
        "stream_bias": torch.randn(4 * size.inner, device=device, dtype=dtype),
        "span_key": torch.randn(*shape, size.inner, device=device, dtype=dtype),
        "span_bias": torch.randn(size.inner, device=device, dtype=dtype),
        "weight": torch.randn(rows, size.inner, device=device, dtype=dtype) / size.inner**0.5,
        "bias": torch.randn(rows, device=device, dtype=dtype),
    }
    return {name: tensor.requires_grad_() for name, tensor in given.items()}


def entropy_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Logits of the masked positions, and their targets."""
    logits = torch.randn(size.predictions, size.vocab, device=device, dtype=dtype)
    targets = torch.randint(0, size.vocab, (size.predictions,), device=device)
    return {"logits": logits.requires_grad_(), "targets": targets}


def linear_entropy_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """What the decoder reads at the masked positions, its narrow table, targets and a random number for each."""
    features, table = (torch.randn(n, NARROW, device=device, dtype=dtype) for n in (size.predictions, size.vocab))
    bias = torch.zeros(size.vocab, device=device, dtype=dtype)
    return {
        "features": features.requires_grad_(),
        "table": (0.1 * table).requires_grad_(),
        "bias": bias.requires_grad_(),
        "targets": torch.randint(0, size.vocab, (size.predictions,), device=device),
        "chances": torch.rand(size.predictions, device=device),
    }


def sampling_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """Logits of the masked positions, their log-sum-exp, and a uniform random number for each."""
    logits = torch.randn(size.predictions, size.vocab, device=device, dtype=dtype)
    chances = torch.rand(size.predictions, device=device)
    return {"logits": logits, "chances": chances, "log_sums": logits.float().logsumexp(-1)}


def norm_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """The stream, the output of a matmul and its bias in half precision, and the float32 parameters of a norm."""
    x, change = (torch.randn(size.batch, size.tokens, size.width, device=device, dtype=dtype) for _ in range(2))
    weight, bias = (torch.randn(size.width, device=device) for _ in range(2))
    change_bias = torch.randn(size.width, device=device, dtype=dtype)
    given = {"x": x, "change": change, "weight": weight, "bias": bias, "change_bias": change_bias}
    return {name: tensor.requires_grad_() for name, tensor in given.items()}


def gelu_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """The output of the first matmul of a feed-forward, and its bias."""
    x = torch.randn(size.batch, size.tokens, 4 * size.width, device=device, dtype=dtype)
    bias = torch.randn(4 * size.width, device=device, dtype=dtype)
    return {"x": x.requires_grad_(), "bias": bias.requires_grad_()}


def gelu_linear_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """The same, and the weight of the second matmul."""
    weight = torch.randn(size.width, 4 * size.width, device=device, dtype=dtype) / (4 * size.width) ** 0.5
    return {**gelu_inputs(size, device, dtype), "weight": weight.requires_grad_()}


def gelu_score_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """The output of the matmul of a head with one output per token, its bias, and the weight of that output."""
    x = torch.randn(size.batch, size.tokens, size.width, device=device, dtype=dtype)
    bias, weight = (torch.randn(size.width, device=device, dtype=dtype) for _ in range(2))
    return {name: each.requires_grad_() for name, each in (("x", x), ("bias", bias), ("weight", weight))}


def feedforward_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Tensors:
    """States inside a block of MobileBERT, which is as wide in all sizes, and the parameters of a feed-forward."""
    width, inner = 128, 512
    given = {
        "x": torch.randn(size.batch, size.tokens, width, device=device, dtype=dtype),
        "up": torch.randn(inner, width, device=device, dtype=dtype) / width**0.5,
        "up_bias": torch.randn(inner, device=device, dtype=dtype),
        "down": torch.randn(width, inner, device=device, dtype=dtype) / inner**0.5,
        "down_bias": torch.randn(width, device=device, dtype=dtype),
        "scale": torch.randn(width, device=device),
        "shift": torch.randn(width, device=device),
    }
    return {name: tensor.requires_grad_() for name, tensor in given.items()}


def embedding_inputs(size: Size, device: str = "cuda", dtype: torch.dtype = torch.float32) -> Tensors:
    """Ids of which some are frequent, as in text, and a narrow table in single precision, as in training."""
    spread = torch.rand(size.batch, size.tokens, device=device) ** 4
    table = torch.randn(size.vocab, NARROW, device=device)
    return {"ids": (spread * size.vocab).long(), "table": table.requires_grad_()}


def norm(
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    bias: Tensor,
    change_bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Residual and norm under autocast, where the reference returns float32."""
    half = x.dtype in (torch.bfloat16, torch.float16)
    with torch.autocast(x.device.type, dtype=x.dtype) if half else nullcontext():
        return residual_norm(x, change, weight, bias, 1e-12, dropout, change_bias)


def dropped_norm(**inputs: Tensor) -> Tensor:
    """The same with the papers' dropout."""
    return norm(**inputs, dropout=0.1)


def feedforward(x: Tensor, **parameters: Tensor) -> Tensor:
    """MobileBERT's feed-forward under autocast, rounded as the next layer would round it."""
    half = x.dtype in (torch.bfloat16, torch.float16)
    with torch.autocast(x.device.type, dtype=x.dtype) if half else nullcontext():
        return relu_feedforward(x, **parameters).to(x.dtype)


def entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss; the most likely entry is added with weight 0, so that it is computed as well."""
    loss, likely, _ = cross_entropy(logits, targets)
    return loss + 0 * likely


def linear_entropy(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, chances: Tensor) -> Tensor:
    """The same of a linear layer; its samples are added in the same way."""
    loss, correct, drawn = linear_cross_entropy(features, table, bias, targets, chances)
    assert drawn is not None
    return loss + 0 * correct + 0 * drawn


def mixed(
    streams: Tensor, stream_bias: Tensor, span_key: Tensor, span_bias: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Both kinds of heads of ConvBERT with its nine taps."""
    n_heads = len(weight) // (TAPS + -TAPS % PADDING)
    return mixed_heads(streams, stream_bias, span_key, span_bias, weight, bias, n_heads=n_heads, taps=TAPS)


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
    "dynamic_conv": (convolution, dynamic_inputs),
    "depthwise": (depthwise, depthwise_inputs),
    "relative_attention": (relative_attention, attention_inputs),
    "plain_attention": (relative_attention, plain_attention_inputs),
    "mixed_heads": (mixed, mixed_inputs),
    "cross_entropy": (entropy, entropy_inputs),
    "linear_cross_entropy": (linear_entropy, linear_entropy_inputs),
    "sampling": (sample, sampling_inputs),
    "residual_norm": (norm, norm_inputs),
    "bias_gelu": (bias_gelu, gelu_inputs),
    "gelu_linear": (gelu_linear, gelu_linear_inputs),
    "gelu_score": (gelu_score, gelu_score_inputs),
    "relu_feedforward": (feedforward, feedforward_inputs),
    "embedding": (embedding, embedding_inputs),
}
RANDOM: dict[str, tuple[Op, Callable[..., Tensors]]] = {"residual_norm with dropout": (dropped_norm, norm_inputs)}
"""Ops whose kernel and reference draw different random numbers: they are timed, and only tests compare them."""
