"""From a graph to an ONNX model: linear layers with the same input are merged, then written as operators."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lightbert.deploy.onnx.graph import Array, Graph, Linear, Lookup, Node, Output
from lightbert.deploy.onnx.inputs import INPUTS

OPSET = 20
"""The first with Gelu. ONNX Runtime reads it since 1.17, transformers.js since version 3."""
_IR_VERSION = 9


def lower(graph: Graph, outputs: Mapping[str, Output]) -> onnx.ModelProto:
    """Write a graph as an ONNX model in float32; `outputs` are its outputs by name."""
    constants = dict(graph.constants)
    nodes: list[Node] = []
    for node in merge(graph.nodes, constants):
        match node:
            case Linear():
                nodes += _linear(node, constants)
            case Lookup():
                constants[node.name] = node.table
                nodes.append(Node("Gather", (node.name, node.input), (node.output,)))
            case Node():
                nodes.append(node)
    nodes += [Node("Identity", (output.value,), (name,)) for name, output in outputs.items()]
    return model_of(nodes, constants, outputs)


def merge(nodes: list[Node | Linear | Lookup], constants: dict[str, Array]) -> list[Node | Linear | Lookup]:
    """Merge linear layers that read the same value into one, followed by a Split."""
    readers: dict[str, list[Linear]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, Linear) and not node.table and node.bias is not None:
            readers[node.input].append(node)
    merged: list[Node | Linear | Lookup] = []
    for node in nodes:
        group = readers[node.input] if isinstance(node, Linear) else []
        if not isinstance(node, Linear) or len(group) < 2 or node not in group:
            merged.append(node)
        elif node is group[0]:
            merged += _as_one(group, constants)
    return merged


def _as_one(group: list[Linear], constants: dict[str, Array]) -> list[Node | Linear | Lookup]:
    weight = np.concatenate([each.weight for each in group], axis=1)
    bias = np.concatenate([each.bias for each in group if each.bias is not None])
    name = "+".join([group[0].name, *(each.name.rpartition(".")[2] for each in group[1:])])
    sizes = np.array([each.weight.shape[1] for each in group], dtype=np.int64)
    constants[f"{name}.sizes"] = sizes
    together = Linear(name, group[0].input, f"{name}_{group[0].output}", weight, bias)
    outputs = tuple(each.output for each in group)
    return [together, Node("Split", (together.output, f"{name}.sizes"), outputs, {"axis": -1})]


def _linear(layer: Linear, constants: dict[str, Array]) -> list[Node]:
    """MatMul and Add; a weight that is a table is transposed when the session starts, so that it is stored once."""
    weight, nodes = f"{layer.name}.weight", []
    if layer.table:
        nodes.append(Node("Transpose", (layer.table,), (weight,), {"perm": [1, 0]}))
    else:
        constants[weight] = layer.weight
    if layer.bias is None:
        return [*nodes, Node("MatMul", (layer.input, weight), (layer.output,))]
    constants[f"{layer.name}.bias"] = layer.bias
    product = f"{layer.output}_product"
    return [
        *nodes,
        Node("MatMul", (layer.input, weight), (product,)),
        Node("Add", (product, f"{layer.name}.bias"), (layer.output,)),
    ]


def model_of(nodes: list[Node], constants: Mapping[str, Array], outputs: Mapping[str, Output]) -> onnx.ModelProto:
    """Assemble an ONNX model; constants that no node reads are left out."""
    read = {name for node in nodes for name in node.inputs}
    graph = helper.make_graph(
        [helper.make_node(node.kind, node.inputs, node.outputs, **node.attributes) for node in nodes],
        "lightbert",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS],
        [_output(name, output) for name, output in outputs.items()],
        [_tensor(name, value) for name, value in constants.items() if name in read],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="lightbert",
    )


def _tensor(name: str, value: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, order="C"), name)


def _output(name: str, output: Output) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, TensorProto.INT64 if output.integer else TensorProto.FLOAT, list(output.shape)
    )
