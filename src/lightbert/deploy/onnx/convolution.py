"""Convolutions as nodes, in the forms that ONNX Runtime runs fastest (docs/adr/0004)."""

import numpy as np
from torch import nn

from lightbert.deploy.onnx.graph import Graph, array_of
from lightbert.deploy.onnx.inputs import Mask
from lightbert.deploy.onnx.layers import linear, unsupported
from lightbert.deploy.onnx.streams import Stream
from lightbert.deploy.onnx.windows import BLOCK, Windows
from lightbert.nn.convolution import Depthwise, DynamicConvolution, SeparableConvolution, SpanConvolution


def convolution(graph: Graph, layer: nn.Module, x: Stream, query: str, value: Stream, mask: Mask) -> str:
    """The convolution heads of mixed attention: [N, D] -> [N, a]."""
    match layer:
        case SeparableConvolution():
            return linear(graph, layer.pointwise, depthwise(graph, layer.depthwise, value.real(graph), mask))
        case DynamicConvolution():
            span = query
            if isinstance(layer, SpanConvolution):
                key = linear(graph, layer.pointwise, depthwise(graph, layer.depthwise, x.real(graph), mask))
                span = graph.op("Mul", query, key)
            weights = graph.softmax(graph.reshape(linear(graph, layer.kernel, span), -1, layer.taps))
            sizes = (layer.n_heads, layer.out_width // layer.n_heads, layer.taps)
            values, windows = linear(graph, layer.value, value), Windows(graph, mask, layer.taps)
            return window_sum(graph, values, weights, sizes, windows, masked=False)
    raise unsupported(layer)


def depthwise(graph: Graph, layer: Depthwise, x: str, mask: Mask) -> str:
    """One fixed kernel per channel, as a grouped Conv over [B, D, T]: [N, D] -> [N, D]."""
    channels, kernel = layer.weight.shape
    inputs = [graph.parameter(layer, "weight", array_of(layer.weight)[:, None])]
    if layer.bias is not None:
        inputs.append(graph.parameter(layer, "bias", array_of(layer.bias)))
    read = graph.transpose(mask.zero_padding(mask.texts(x, channels)), 0, 2, 1)
    radius = kernel // 2
    mixed = graph.op("Conv", read, *inputs, group=channels, kernel_shape=[kernel], pads=[radius, radius])
    return graph.reshape(graph.transpose(mixed, 0, 2, 1), -1, channels)


def window_sum(
    graph: Graph, values: str, weights: str, sizes: tuple[int, int, int], windows: Windows, *, masked: bool
) -> str:
    """Sum the window around each token: values [N, H·E] with weights [N·H, K] -> [N, H·E].

    The tokens are divided into n blocks of S. Within a block the weights form the band of a matrix [S, S + K - 1],
    which is multiplied with the values that the block reads. Rows are gathered by indices that all layers share.

    sizes: H, E and K.
    masked: whether weights outside of the text are 0 already.
    """
    n_heads, head_width, kernel = sizes
    read = graph.op("Gather", graph.reshape(values, -1, head_width), windows.rows(n_heads))  # [B, H, n, S + K - 1, E]
    kernels = graph.op("Gather", weights, windows.centres(n_heads))  # [B, H, n, S, K]
    if not masked:
        kernels = graph.op("Mul", kernels, windows.taps)
    # Each kernel is followed by S zeros. Read as rows that are shorter by one, kernel i is moved i places to the right.
    # The product with an identity is faster than Pad with two threads.
    widen = graph.constant(f"widen[{kernel}]", np.eye(kernel, kernel + BLOCK, dtype=np.float32))
    padded = graph.op("MatMul", kernels, widen)
    window = BLOCK + kernel - 1
    rows = graph.slice(graph.reshape(padded, 0, 0, 0, -1), graph.ints(0), graph.ints(BLOCK * window), 3)
    mixed = graph.op("MatMul", graph.reshape(rows, 0, 0, 0, BLOCK, window), read)  # [B, H, n, S, E]
    tokens = graph.op("Gather", graph.reshape(mixed, -1, head_width), windows.tokens(n_heads))  # [B, T, H, E]
    return graph.reshape(tokens, -1, n_heads * head_width)
