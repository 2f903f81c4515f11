"""Linear layers, norms and activations as nodes; constant factors are folded into the weights."""

import numpy as np
from torch import nn

from lightbert.deploy.onnx.graph import Array, Graph, array_of
from lightbert.errors import InputError
from lightbert.nn.norms import NoNorm
from lightbert.nn.projections import GroupedLinear


def linear(graph: Graph, layer: nn.Module, x: str, *, scale: Array | float = 1.0, shift: Array | float = 0.0) -> str:
    """(x @ weight + bias) · scale + shift, with scale and shift folded into the weights."""
    name = graph.path(layer)
    match layer:
        case nn.Linear():
            weight, bias = array_of(layer.weight).T, _bias(layer)
            return graph.linear(x, name, weight * np.float32(scale), bias * np.float32(scale) + np.float32(shift))
        case GroupedLinear():
            groups, inputs, outputs = layer.weight.shape
            weights, biases = array_of(layer.weight), array_of(layer.bias)
            factors = np.broadcast_to(np.float32(scale), biases.shape).reshape(groups, outputs)
            biases = (biases * np.float32(scale) + np.float32(shift)).reshape(groups, outputs)
            parts = graph.split(x, [inputs] * groups)
            return graph.concat(
                *(
                    graph.linear(part, f"{name}.{number}", weights[number] * factors[number], biases[number])
                    for number, part in enumerate(parts)
                )
            )
    raise unsupported(layer)


def _bias(layer: nn.Linear) -> Array:
    return np.zeros(layer.out_features, np.float32) if layer.bias is None else array_of(layer.bias)


def norm(graph: Graph, layer: nn.Module, x: str) -> str:
    """Apply a LayerNorm or a NoNorm."""
    weight, shift = _parameters(graph, layer)
    if isinstance(layer, nn.LayerNorm):
        # In steps: ONNX Runtime's LayerNormalization takes more than twice the time (docs/adr/0004).
        centred = graph.op("Sub", x, graph.op("ReduceMean", x, graph.ints(-1), keepdims=1))
        variance = graph.op("ReduceMean", graph.op("Mul", centred, centred), graph.ints(-1), keepdims=1)
        deviation = graph.op("Sqrt", graph.op("Add", variance, graph.number(layer.eps)))
        x = graph.op("Mul", centred, graph.op("Reciprocal", deviation))
    return graph.op("Add", graph.op("Mul", x, weight), shift)


def linear_norm(graph: Graph, layer: nn.Module, norm_layer: nn.Module, x: str) -> str:
    """norm(linear(x)); a NoNorm is folded into the weights."""
    if isinstance(norm_layer, NoNorm):
        return linear(graph, layer, x, scale=array_of(norm_layer.weight), shift=array_of(norm_layer.bias))
    return norm(graph, norm_layer, linear(graph, layer, x))


def residual_norm(graph: Graph, layer: nn.Module, norm_layer: nn.Module, x: str, residual: str) -> str:
    """norm(linear(x) + residual); a NoNorm is folded into the weights, up to the scale of the residual."""
    if isinstance(norm_layer, NoNorm):
        scale, _ = _parameters(graph, norm_layer)
        change = linear(graph, layer, x, scale=array_of(norm_layer.weight), shift=array_of(norm_layer.bias))
        return graph.op("Add", change, graph.op("Mul", residual, scale))
    return norm(graph, norm_layer, graph.op("Add", linear(graph, layer, x), residual))


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


def _parameters(graph: Graph, layer: nn.Module) -> tuple[str, str]:
    if not isinstance(layer, nn.LayerNorm | NoNorm):
        raise unsupported(layer)
    weight, bias = array_of(layer.weight), array_of(layer.bias)
    return graph.parameter(layer, "weight", weight), graph.parameter(layer, "bias", bias)
