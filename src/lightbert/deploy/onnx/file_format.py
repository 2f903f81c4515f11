"""The content of an ONNX file."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lightbert.deploy.onnx.graph import Array, Node, Output
from lightbert.deploy.onnx.inputs import INPUTS

OPSET = 23
"""The first with Attention. ONNX Runtime reads it since 1.24, transformers.js since version 4."""
_IR_VERSION = 10


def serialize(nodes: list[Node], constants: Mapping[str, Array], outputs: Mapping[str, Output]) -> bytes:
    """Serialize operators; constants that no operator reads are left out."""
    read = {name for node in nodes for name in node.inputs}
    graph = helper.make_graph(
        [helper.make_node(node.kind, node.inputs, node.outputs, **node.attributes) for node in nodes],
        "lightbert",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS],
        [_output(name, output) for name, output in outputs.items()],
        [_tensor(name, value) for name, value in constants.items() if name in read],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION, producer_name="lightbert"
    )
    content: bytes = model.SerializeToString()
    return content


def _tensor(name: str, value: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, order="C"), name)


def _output(name: str, output: Output) -> onnx.ValueInfoProto:
    kind = TensorProto.INT64 if output.integer else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, kind, None if output.shape is None else list(output.shape))
