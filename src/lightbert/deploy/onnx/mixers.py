"""Mixers as nodes."""

import math

import numpy as np
from torch import nn

from lightbert.deploy.onnx.convolution import convolution, depthwise, window_sum
from lightbert.deploy.onnx.distance import distance_bias
from lightbert.deploy.onnx.graph import Graph, array_of
from lightbert.deploy.onnx.inputs import HIDDEN, Mask
from lightbert.deploy.onnx.layers import linear, product, unsupported
from lightbert.deploy.onnx.streams import Stream
from lightbert.deploy.onnx.windows import Windows
from lightbert.nn.attention import SelfAttention
from lightbert.nn.composite import CompositeAttention, ConvolutionalProjection, LocalAttention
from lightbert.nn.mixed import MixedAttention


def mixer(graph: Graph, part: nn.Module, x: Stream, mask: Mask, value: Stream | None = None) -> Stream:
    """A mixer: [N, D] -> [N, out_width]."""
    value = value or x
    match part:
        case SelfAttention():
            return _self_attention(graph, part, x, value, mask)[0].settled(graph)
        case MixedAttention():
            attended, query = _self_attention(graph, part, x, value, mask)
            convolved = convolution(graph, part.convolution, x, query, value, mask)
            shift = np.concatenate([attended.shift, np.zeros_like(attended.shift)])
            return Stream.shifted(graph.concat(attended.rows, convolved), shift).settled(graph)
        case CompositeAttention():
            return Stream.plain(_composite(graph, part, x, value, mask), part.out_width)
        case LocalAttention():
            return Stream.plain(_local(graph, part, x, value, mask), part.out_width)
    raise unsupported(part)


def _self_attention(
    graph: Graph, part: SelfAttention | MixedAttention, x: Stream, value: Stream, mask: Mask
) -> tuple[Stream, str]:
    """The attention heads [N, H·E], and the queries.

    Two biases aren't computed. That of the keys changes all scores of a query by the same number, which the softmax
    ignores. That of the values is added to each result, because weights sum to one, so it becomes a shift.
    """
    width = part.query.out_features
    query = linear(graph, part.query, x)
    key, _ = product(graph, part.key, x, 1 / math.sqrt(width // part.n_heads))
    values, shift = product(graph, part.value, value)
    return Stream.shifted(attention(graph, (query, key, values), part.n_heads, width, mask), shift), query


def attention(
    graph: Graph, projected: tuple[str, str, str], n_heads: int, width: int, mask: Mask, bias: str = ""
) -> str:
    """Attention with scaled keys: query, key and values [N, width] -> [N, width]; `bias` replaces that of the mask."""
    texts = (mask.texts(each, width) for each in projected)
    heads = {"q_num_heads": n_heads, "kv_num_heads": n_heads, "scale": 1.0}
    return graph.reshape(graph.op("Attention", *texts, bias or mask.pairs, **heads), -1, width)


def split_heads(graph: Graph, x: str, n_heads: int, mask: Mask) -> str:
    """[N, H·E] -> [B, H, T, E]."""
    return graph.transpose(mask.texts(x, n_heads, -1), 0, 2, 1, 3)


def _projections(
    graph: Graph,
    part: CompositeAttention,
    x: Stream,
    value: Stream,
    mask: Mask,
) -> tuple[str, str, str]:
    """Queries, keys and values. The keys are scaled by 1/√E, which is cheaper than to scale the scores."""
    scale = 1 / math.sqrt(part.out_width // part.n_heads)
    return (
        _projection(graph, part.query, x, mask),
        _projection(graph, part.key, x, mask, scale),
        _projection(graph, part.value, value, mask),
    )


def _projection(graph: Graph, layer: nn.Module, x: Stream, mask: Mask, scale: float = 1.0) -> str:
    if isinstance(layer, ConvolutionalProjection):
        read = depthwise(graph, layer.convolution, x.real(graph), mask)
        convolved = linear(graph, layer.convolved, read, scale=scale)
        return graph.concat(convolved, linear(graph, layer.direct, x, scale=scale))
    return linear(graph, layer, x, scale=scale)


def _composite(graph: Graph, part: CompositeAttention, x: Stream, value: Stream, mask: Mask) -> str:
    query, key, values = _projections(graph, part, x, value, mask)
    by_query = by_key = None
    if part.query_dynamic is not None:
        scale = np.float32(1 / math.sqrt(part.query_dynamic.shape[0]))
        weight = graph.parameter(part, "query_dynamic", array_of(part.query_dynamic) * scale)
        by_query = graph.op("MatMul", split_heads(graph, query, part.n_heads, mask), weight)  # [B, H, T, 2R+1]
    if part.fixed is not None:
        fixed = graph.parameter(part, "fixed", array_of(part.fixed)[None, :, None, :])
        if by_query is None:
            like = graph.concat(graph.ints(1, 1), mask.tokens, graph.ints(1), axis=0)
            by_query = graph.op("Expand", fixed, like)
        else:
            by_query = graph.op("Add", by_query, fixed)
    if part.key_dynamic is not None:
        # The keys are scaled already.
        weight = graph.parameter(part, "key_dynamic", array_of(part.key_dynamic))
        by_key = graph.op("MatMul", split_heads(graph, key, part.n_heads, mask), weight)
    bias = ""
    for weights, by in ((by_query, "query"), (by_key, "key")):
        if weights is not None:
            spread = distance_bias(graph, weights, part.offsets, part.outside, by, mask)
            bias = graph.op("Add", spread, bias or mask.attention)
    attended = attention(graph, (query, key, values), part.n_heads, part.out_width, mask, bias)
    if part.depthwise is None:
        return attended
    return graph.op("Add", attended, depthwise(graph, part.depthwise, values, mask))


def _local(graph: Graph, part: LocalAttention, x: Stream, value: Stream, mask: Mask) -> str:
    half = part.out_width // 2
    query = linear(graph, part.query, x)
    key, _ = product(graph, part.key, x, 1 / math.sqrt(half // part.n_heads))
    values, local_values = graph.split(linear(graph, part.value, value), [half, half])
    attended = attention(graph, (query, key, values), part.n_heads, half, mask)
    span_key = linear(graph, part.pointwise, depthwise(graph, part.depthwise, x.real(graph), mask))
    span = graph.op("Mul", query, span_key)
    logits = mask.texts(linear(graph, part.kernel, span), part.n_heads, part.taps)  # [B, T, H, K]
    if part.indexed_by == "key":
        logits = _kernel_of_neighbour(graph, logits, part.taps, mask)
    weights = graph.softmax(graph.op("Where", mask.taps(part.taps), logits, graph.number(HIDDEN)))
    sizes = (part.n_heads, half // part.n_heads, part.taps)
    kernels, windows = graph.reshape(weights, -1, part.taps), Windows(graph, mask, part.taps)
    return graph.concat(attended, window_sum(graph, local_values, kernels, sizes, windows, masked=True))


def _kernel_of_neighbour(graph: Graph, logits: str, kernel: int, mask: Mask) -> str:
    """Take tap j from the kernel of the token that tap j reads: [B, T, H, K] -> [B, T, H, K]."""
    radius = kernel // 2
    padded = graph.op("Pad", logits, graph.ints(0, radius, 0, 0, 0, radius, 0, 0))
    columns = graph.split(padded, [1] * kernel)
    return graph.concat(
        *(
            graph.slice(column, graph.ints(tap), graph.op("Add", mask.tokens, graph.ints(tap)), 1)
            for tap, column in enumerate(columns)
        )
    )
