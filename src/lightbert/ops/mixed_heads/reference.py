"""Mixed heads as separate ops."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.dynamic_conv import dynamic_conv
from lightbert.ops.relative_attention import relative_attention


def mixed_heads(
    streams: Tensor,
    stream_bias: Tensor,
    span_key: Tensor,
    span_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    attention_texts: Tensor | None,
    convolution_texts: Tensor | None,
    n_heads: int,
    taps: int,
    dropout: float,
) -> Tensor:
    """See :func:`lightbert.ops.mixed_heads.mixed_heads`."""
    # Adds zero, and the gradient of the bias.
    streams = streams + (stream_bias - stream_bias.detach())
    query, key, value, convolved = streams.chunk(4, dim=-1)
    heads = [x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in (query, key, value)]
    attended = relative_attention(*heads, texts=attention_texts, dropout=dropout).transpose(1, 2).flatten(2)
    logits = F.linear(query * (span_key + span_bias), weight, bias).unflatten(-1, (n_heads, -1))
    return torch.cat([attended, dynamic_conv(convolved, logits, convolution_texts, taps)], dim=-1)
