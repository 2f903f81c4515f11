"""Linear layers, norms and activations as nodes; constant factors are folded into the weights."""

import numpy as np
from torch import nn

from lightbert.deploy.onnx.graph import Array, Graph, array_of
from lightbert.deploy.onnx.streams import Stream
from lightbert.errors import InputError
from lightbert.nn.feedforward import GroupedLinear
from lightbert.nn.norms import NoNorm


def linear(graph: Graph, layer: nn.Module, x: str | Stream, *, scale: Array | float = 1.0, matrix: bool = True) -> str:
    """(x @ weight + bias) · scale, with the scales and the shift of x folded into the weights.

    matrix: whether x is [N, I]; other shapes are slower.
    """
    name = graph.path(layer)
    match layer:
        case nn.Linear():
            rows, weight, bias = _folded(layer, x)
            return graph.linear(rows, name, weight * np.float32(scale), bias * np.float32(scale), matrix=matrix)
        case GroupedLinear():
            groups, inputs, outputs = layer.weight.shape
            weights, biases = array_of(layer.weight), array_of(layer.bias)
            factors = np.broadcast_to(np.float32(scale), biases.shape).reshape(groups, outputs)
            biases = (biases * np.float32(scale)).reshape(groups, outputs)
            parts = graph.split(x if isinstance(x, str) else x.real(graph), [inputs] * groups)
            return graph.concat(
                *(
                    graph.linear(
                        part, f"{name}.{number}", weights[number] * factors[number], biases[number], matrix=matrix
                    )
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
        return Stream(changed, np.ones_like(weight), shift * weight + bias).settled(graph)
    return Stream.plain(norm(graph, norm_layer, linear(graph, layer, x)), len(weight))


def residual_norm(graph: Graph, layer: nn.Module, norm_layer: nn.Module, x: str | Stream, residual: Stream) -> Stream:
    """norm(linear(x) + residual); a NoNorm adds no operator."""
    weight, bias = _parameters(norm_layer)
    if isinstance(norm_layer, NoNorm) and isinstance(layer, nn.Linear):
        return _sum(graph, layer, x, residual).affine(weight, bias).settled(graph)
    total = graph.op("Add", linear(graph, layer, x), residual.real(graph))
    return Stream.plain(norm(graph, norm_layer, total), len(weight))


def _sum(graph: Graph, layer: nn.Linear, x: str | Stream, residual: Stream) -> Stream:
    """linear(x) + residual in the scale of the residual; the bias becomes a part of the shift."""
    rows, weight, bias = _folded(layer, x)
    total = graph.linear(rows, graph.path(layer), weight / residual.scale, None, residual=residual.rows)
    return Stream(total, residual.scale, residual.shift + bias)


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
