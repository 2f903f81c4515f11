"""Linear layers, norms, activations and convolutions as nodes, in the forms that ONNX Runtime runs fastest."""

import numpy as np
from torch import nn

from lightbert.deploy.onnx.graph import Array, Graph, Stream, array_of
from lightbert.deploy.onnx.mask import BLOCK, Mask, Windows
from lightbert.errors import InputError
from lightbert.nn.convolution import (
    Depthwise,
    DynamicConvolution,
    GatedConvolution,
    SeparableConvolution,
    SpanConvolution,
)
from lightbert.nn.feedforward import GroupedLinear
from lightbert.nn.norms import NoNorm


def linear(graph: Graph, layer: nn.Module, x: str | Stream, *, scale: float = 1.0, matrix: bool = True) -> str:
    """(x @ weight + bias) · scale, with the scales and the shift of x folded into the weights.

    matrix: whether x is [N, I]; other shapes are slower.
    """
    name, factor = graph.path(layer), np.float32(scale)
    match layer:
        case nn.Linear():
            rows, weight, bias = _folded(layer, x)
            return graph.linear(rows, name, weight * factor, bias * factor, matrix=matrix)
        case GroupedLinear():
            groups, inputs, outputs = layer.weight.shape
            weights, biases = array_of(layer.weight) * factor, array_of(layer.bias).reshape(groups, outputs) * factor
            parts = graph.split(x if isinstance(x, str) else x.real(graph), [inputs] * groups)
            return graph.concat(
                *(
                    graph.linear(part, f"{name}.{number}", weights[number], biases[number], matrix=matrix)
                    for number, part in enumerate(parts)
                )
            )
    raise unsupported(layer)


def product(graph: Graph, layer: nn.Module, x: Stream, scale: float = 1.0) -> tuple[str, Array]:
    """X @ weight · scale, and the bias · scale that is left out; it includes that of the shift of x."""
    if not isinstance(layer, nn.Linear):
        raise unsupported(layer)
    rows, weight, bias = _folded(layer, x)
    return graph.linear(rows, graph.path(layer), weight * np.float32(scale), None), bias * np.float32(scale)


def linear_activation(graph: Graph, layer: nn.Module, function: nn.Module, x: Stream) -> str | Stream:
    """function(linear(x)).

    In float32, relu(y + b) is computed as max(y, -b) + b, whose last b is folded into the next layer: Gemm would copy b
    to all rows in one thread before it multiplies.
    """
    if isinstance(function, nn.ReLU) and isinstance(layer, nn.Linear) and not graph.int8:
        rows, bias = product(graph, layer, x)
        return Stream.shifted(graph.op("Max", rows, graph.parameter(layer, "lowest", -bias)), bias)
    return activation(graph, function, linear(graph, layer, x))


def _folded(layer: nn.Linear, x: str | Stream) -> tuple[str, Array, Array]:
    """The rows of x, and the weight [I, O] and the bias that apply to them."""
    weight = array_of(layer.weight).T
    bias = np.zeros(layer.out_features, np.float32) if layer.bias is None else array_of(layer.bias)
    if isinstance(x, str):
        return x, weight, bias
    return x.rows, x.scale[:, None] * weight, x.shift @ weight + bias


def norm(graph: Graph, layer: nn.Module, x: str, *, matrix: bool = True) -> str:
    """Apply a LayerNorm or a NoNorm.

    matrix: whether x is [N, D].
    """
    weight, bias = _parameters(layer)
    if isinstance(layer, nn.LayerNorm):
        # As tokens with one channel each: ONNX Runtime's LayerNormalization takes three times as long (docs/adr/0004).
        tokens = graph.reshape(x, -1, 1, len(weight))
        one, zero = (graph.constant(f"vector[{value}]", np.full(1, value, np.float32)) for value in (1.0, 0.0))
        normed = graph.op("InstanceNormalization", tokens, one, zero, epsilon=layer.eps)
        x = graph.reshape(normed, -1, len(weight)) if matrix else graph.op("Reshape", normed, graph.op("Shape", x))
    scaled = graph.op("Mul", x, graph.parameter(layer, "weight", weight))
    return graph.op("Add", scaled, graph.parameter(layer, "bias", bias))


def linear_norm(graph: Graph, layer: nn.Module, norm_layer: nn.Module, x: Stream) -> Stream:
    """norm(linear(x)); a NoNorm adds no operator."""
    weight, bias = _parameters(norm_layer)
    if isinstance(norm_layer, NoNorm) and isinstance(layer, nn.Linear):
        rows, matrix, shift = _folded(layer, x)
        changed = graph.linear(rows, graph.path(layer), matrix * weight, None)
        return Stream.shifted(changed, shift * weight + bias).settled(graph)
    return Stream.plain(norm(graph, norm_layer, linear(graph, layer, x)), len(weight))


def residual_norm(graph: Graph, layer: nn.Module, norm_layer: nn.Module, x: str | Stream, residual: Stream) -> Stream:
    """norm(linear(x) + residual); a NoNorm adds no operator."""
    weight, bias = _parameters(norm_layer)
    if isinstance(norm_layer, NoNorm) and isinstance(layer, nn.Linear):
        # The sum has the scale of the residual, and the bias becomes a part of its shift.
        rows, matrix, shift = _folded(layer, x)
        total = graph.linear(rows, graph.path(layer), matrix / residual.scale, None, residual=residual.rows)
        return Stream(total, residual.scale * weight, (residual.shift + shift) * weight + bias).settled(graph)
    total = graph.op("Add", linear(graph, layer, x), residual.real(graph))
    return Stream.plain(norm(graph, norm_layer, total), len(weight))


def activation(graph: Graph, layer: nn.Module, x: str) -> str:
    """Apply an activation function."""
    match layer:
        case nn.GELU():
            return graph.op("Gelu", x, approximate=layer.approximate)
        case nn.ReLU6():
            return graph.op("Clip", x, graph.number(0.0), graph.number(6.0))
        case nn.ReLU():
            return graph.op("Relu", x)
        case nn.Tanh():
            return graph.op("Tanh", x)
    raise unsupported(layer)


def unsupported(layer: nn.Module) -> InputError:
    """The error for a part that has no ONNX form."""
    return InputError(
        f"{type(layer).__name__} can't be exported to ONNX; supported are the parts of lightbert.nn without adapters "
        "and quantized layers"
    )


def _parameters(layer: nn.Module) -> tuple[Array, Array]:
    """The weight and the bias of a norm."""
    if not isinstance(layer, nn.LayerNorm | NoNorm):
        raise unsupported(layer)
    return array_of(layer.weight), array_of(layer.bias)


def convolution(
    graph: Graph, layer: nn.Module, x: Stream, query: str, value: Stream, mask: Mask, values: str = ""
) -> str:
    """The convolution heads of mixed attention: [N, D] -> [N, a]; `values`: those of attention, if it shares them."""
    match layer:
        case SeparableConvolution():
            return linear(graph, layer.pointwise, depthwise(graph, layer.depthwise, value.real(graph), mask))
        case DynamicConvolution():
            span = query
            if isinstance(layer, GatedConvolution):
                linear_half, gate = graph.split(linear(graph, layer.gate, x), [layer.out_width] * 2)
                span = values = graph.op("Mul", linear_half, graph.op("Sigmoid", gate))
            if isinstance(layer, SpanConvolution):
                key = linear(graph, layer.pointwise, depthwise(graph, layer.depthwise, x.real(graph), mask))
                span = graph.op("Mul", query, key)
                graph.factors[span] = (key,)
            weights = graph.softmax(graph.reshape(linear(graph, layer.kernel, span), -1, layer.taps))
            sizes = (layer.n_heads, layer.out_width // layer.n_heads, layer.taps)
            if layer.value is None:
                return window_sum(graph, values, weights, sizes, mask, masked=False)
            values = linear(graph, layer.value, value)
            mixed = window_sum(graph, values, weights, sizes, mask, masked=False)
            graph.factors[mixed] = (values,)
            return mixed
    raise unsupported(layer)


def depthwise(graph: Graph, layer: Depthwise, x: str, mask: Mask) -> Stream:
    """One fixed kernel per channel: [N, D] -> [N, D]."""
    channels = len(layer.weight)
    mixed = graph.depthwise(mask.zero_rows(x), graph.path(layer), array_of(layer.weight), mask.shape(channels))
    shift = np.zeros(channels, np.float32) if layer.bias is None else array_of(layer.bias)
    return Stream.shifted(mixed, shift).settled(graph)


def window_sum(
    graph: Graph, values: str, weights: str, sizes: tuple[int, int, int], mask: Mask, *, masked: bool
) -> str:
    """Sum the window around each token: values [N, H·E] with weights [N·H, K] -> [N, H·E].

    The tokens are divided into n blocks of S. Within a block the weights form the band of a matrix [S, S + K - 1],
    which is multiplied with the values that the block reads. Rows are gathered by indices that all layers share.

    sizes: H, E and K.
    masked: whether weights outside of the text are 0 already.
    """
    n_heads, head_width, kernel = sizes
    windows, window = Windows(graph, mask, kernel), BLOCK + kernel - 1
    blocks = graph.op("Gather", graph.reshape(values, -1, head_width), windows.rows(n_heads))  # [B, H, n, S + K - 1, E]
    kernels = graph.op("Gather", weights, windows.centres(n_heads))  # [B, H, n, S, K]
    if not masked:
        kernels = graph.op("Mul", kernels, windows.taps)
    # Each kernel is followed by S zeros. Read as rows that are shorter by one, kernel i is moved i places to the right.
    # The product with an identity is faster than Pad with two threads.
    widen = graph.constant(f"widen[{kernel}]", np.eye(kernel, kernel + BLOCK, dtype=np.float32))
    padded = graph.op("MatMul", kernels, widen)
    rows = graph.slice(graph.reshape(padded, 0, 0, 0, -1), graph.ints(0), graph.ints(BLOCK * window), 3)
    mixed = graph.op("MatMul", graph.reshape(rows, 0, 0, 0, BLOCK, window), blocks)  # [B, H, n, S, E]
    tokens = graph.op("Gather", graph.reshape(mixed, -1, head_width), windows.tokens(n_heads))  # [B, T, H, E]
    return graph.reshape(tokens, -1, n_heads * head_width)


def distance_bias(graph: Graph, weights: str, offsets: int, outside: str, by: str, mask: Mask) -> str:
    """Spread weights [B or 1, H, T, 2R+1] by offset over queries and keys: [B or 1, H, T, T].

    The weights are padded by T on both sides, with the outermost weight or zeros. Read as rows that are shorter by
    one, the weights of token i are moved i places to the right, so that offset 0 is on the diagonal.
    by: "query" if the rows of `weights` are queries, "key" if they are keys.
    """
    tokens, radius, once = mask.tokens, offsets // 2, graph.once
    # One row more than needed, so that the rows that are read don't end beyond the last element.
    pads = once("distance pads", lambda: graph.concat(graph.ints(0, 0, 0), tokens, graph.ints(0, 0, 1), tokens, axis=0))
    padded = graph.op("Pad", weights, pads, mode="edge" if outside == "clamp" else "constant")
    flat = graph.reshape(padded, 0, 0, -1)  # [B, H, (T + 1)·(2R + 1 + 2T)]

    def row_length() -> str:
        return graph.op("Add", graph.op("Mul", tokens, graph.ints(2)), graph.ints(offsets - 1))

    shorter = once(("shorter rows", offsets), row_length)
    start = once(("first offset", radius), lambda: graph.op("Add", tokens, graph.ints(radius)))
    end = once(("last offset", offsets), lambda: graph.op("Add", start, graph.op("Mul", tokens, shorter)))
    shape = once(("rows", offsets), lambda: graph.concat(graph.ints(0, 0), tokens, shorter, axis=0))
    rows = graph.op("Reshape", graph.slice(flat, start, end, 2), shape)
    bias = graph.slice(rows, graph.ints(0), tokens, 3)
    return bias if by == "query" else graph.transpose(bias, 0, 1, 3, 2)
