"""Convolutions as nodes, in the forms that ONNX Runtime runs fastest (docs/adr/0004)."""

from torch import nn

from lightbert.deploy.onnx.graph import Graph, array_of
from lightbert.deploy.onnx.inputs import Mask
from lightbert.deploy.onnx.layers import linear, unsupported
from lightbert.deploy.onnx.streams import Stream
from lightbert.nn.convolution import DynamicConvolution, SeparableConvolution, SpanConvolution
from lightbert.nn.projections import Depthwise

BLOCK = 16
"""Tokens per block of the banded matrix product: the fastest of 8, 16, 32 and 64 on a Neoverse-N1."""


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
            logits = mask.texts(linear(graph, layer.kernel, span), layer.n_heads, layer.taps)
            values = mask.zero_padding(mask.texts(linear(graph, layer.value, value), layer.out_width))
            sizes = (layer.n_heads, layer.out_width // layer.n_heads, layer.taps)
            return window_sum(graph, values, graph.softmax(logits), sizes, mask)
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


def window_sum(graph: Graph, values: str, weights: str, sizes: tuple[int, int, int], mask: Mask) -> str:
    """Sum the window around each token: values [B, T, H·E] with weights [B, T, H, K] -> [N, H·E].

    The tokens are divided into n blocks of S. Within a block the weights form the band of a matrix [S, S + K - 1],
    which is multiplied with the values that the block reads.

    sizes: H, E and K.
    """
    n_heads, head_width, kernel = sizes
    size = max(BLOCK, kernel - 1)
    window, radius = size + kernel - 1, kernel // 2
    blocks, missing = _blocks(graph, mask, size)

    # The shapes are the same in all layers. ONNX Runtime would find that out, but takes longer to start.
    def shape(name: str, *parts: str) -> str:
        return graph.once((name, sizes), lambda: graph.concat(*parts, axis=0))

    # Each kernel is followed by S zeros. Read as rows that are shorter by one, kernel i is moved i places to the right.
    zeros = shape("band pads", graph.ints(0, 0, 0, 0, 0), missing, graph.ints(0, size))
    split = shape("band rows", graph.ints(0), blocks, graph.ints(size, n_heads, kernel + size))
    padded = graph.op("Reshape", graph.op("Pad", weights, zeros), split)
    rows = graph.reshape(graph.transpose(padded, 0, 3, 1, 2, 4), 0, 0, 0, -1)  # [B, H, n, S·(S + K)]
    band = graph.reshape(graph.slice(rows, graph.ints(0), graph.ints(size * window), 3), 0, 0, 0, size, window)
    # One block more than needed: the windows of a block end in the next one.
    after = graph.once(("after", size, radius), lambda: graph.op("Add", missing, graph.ints(size - radius)))
    one_more = graph.once(("one more", size), lambda: graph.op("Add", blocks, graph.ints(1)))
    beyond = graph.op("Pad", values, shape("value pads", graph.ints(0, radius, 0, 0), after, graph.ints(0)))
    split = shape("value rows", graph.ints(0), one_more, graph.ints(size, n_heads, head_width))
    heads = graph.transpose(graph.op("Reshape", beyond, split), 0, 3, 1, 2, 4)  # [B, H, n + 1, S, E]
    these = graph.slice(heads, graph.ints(0), blocks, 2)
    following = graph.slice(graph.slice(heads, graph.ints(1), one_more, 2), graph.ints(0), graph.ints(kernel - 1), 3)
    mixed = graph.op("MatMul", band, graph.concat(these, following, axis=3))  # [B, H, n, S, E]
    merged = graph.reshape(graph.transpose(mixed, 0, 2, 3, 1, 4), 0, -1, n_heads * head_width)
    return graph.reshape(graph.slice(merged, graph.ints(0), mask.tokens, 1), -1, n_heads * head_width)


def _blocks(graph: Graph, mask: Mask, size: int) -> tuple[str, str]:
    """[1] the number of blocks of this size that hold all tokens, and [1] the tokens that are missing in the last."""
    whole = graph.once(("rounded", size), lambda: graph.op("Add", mask.tokens, graph.ints(size - 1)))
    blocks = graph.once(("blocks", size), lambda: graph.op("Div", whole, graph.ints(size)))
    room = graph.once(("room", size), lambda: graph.op("Mul", blocks, graph.ints(size)))
    return blocks, graph.once(("missing", size), lambda: graph.op("Sub", room, mask.tokens))
