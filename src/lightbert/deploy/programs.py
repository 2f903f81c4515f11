"""Models as programs of torch.export: archives for PyTorch, and files for ExecuTorch.

Programs for ExecuTorch are rewritten: operators that XNNPACK doesn't take run one by one in ExecuTorch's own kernels,
and every operator takes a tenth of a second to lower.
"""

import warnings
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.export import Dim

from lightbert.deploy.verification import Batch, Outputs
from lightbert.errors import InputError, required
from lightbert.nn.encoder import Encoder
from lightbert.tasks.predict.exported import SHORTEST

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten

_DEFAULT_LENGTH = 512
_MAX_BATCH = 4096
_LARGEST_INT8 = 127.0


def exported_program(model: Encoder, head: str, *, any_batch: bool) -> "ExportedProgram":
    """Trace a model with dynamic length, and with `any_batch` dynamic batch size; one row otherwise."""
    # The beam search depends on whether a text is shorter than the beam, which torch.export can't express.
    if head in ("beam", "choice"):
        raise InputError(f"head {head!r} can only be exported to ONNX; use --to onnx")
    return _traced(Outputs(model, head), model, any_batch=any_batch)


def _traced(module: nn.Module, model: Encoder, *, any_batch: bool) -> "ExportedProgram":
    example = torch.ones(2 if any_batch else 1, SHORTEST + 4, dtype=torch.int64)
    shape = {1: Dim("tokens", min=SHORTEST, max=model.positions or _DEFAULT_LENGTH)}
    if any_batch:
        shape[0] = Dim("batch", min=1, max=_MAX_BATCH)
    with warnings.catch_warnings():
        # About torch's own insides.
        warnings.simplefilter("ignore")
        return torch.export.export(module, (example, example != 0, example * 0), dynamic_shapes=(shape, shape, shape))


def int8_program(program: "ExportedProgram", model: Encoder, batch: Batch) -> "ExportedProgram":
    """Quantize the linear layers of a program for XNNPACK: weights per channel, inputs by their range in every call.

    Layers that read the same input become one. Embedding tables become integers with one scale per row.
    batch: any text; it runs once, as the tools of torchao require.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with required("export to ExecuTorch requires executorch and torchao", "lightbert[executorch]"):
            from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
            from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        scheme = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
        module = program.module()
        join_layers(module)
        prepared = prepare_pt2e(module, xnnpack.XNNPACKQuantizer().set_global(scheme))
        prepared(*(torch.from_numpy(array[:1]) for array in batch.arrays))
        converted = convert_pt2e(prepared)
        quantize_tables(converted)
        return _traced(converted, model, any_batch=False)


def linear_layers(program: "ExportedProgram") -> int:
    """The number of linear layers of a program."""
    return sum(node.target is aten.linear.default for node in program.graph.nodes)


def write_pt2(program: "ExportedProgram", path: Path) -> None:
    """Write an archive that PyTorch runs without lightbert; it doesn't contain the paths of source files."""
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, path)


def write_pte(program: "ExportedProgram", path: Path, *, int8: bool = False) -> None:
    """Write a file for ExecuTorch that runs linear layers and arithmetic with XNNPACK.

    int8: the program comes from `int8_program`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with required("export to ExecuTorch requires executorch", "lightbert[executorch]"):
            from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
        partitioners = [XnnpackPartitioner()]
        if int8:
            # Quantized layers first, one by one: a group of them and the arithmetic between them can depend on itself.
            dynamic = XnnpackPartitioner(config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, per_op_mode=True)
            partitioners.insert(0, dynamic)
        rewrite(program)
        # The checks after each pass take a tenth of the time; whoever exports compares the outputs of the file.
        unchecked = EdgeCompileConfig(_check_ir_validity=False)
        lowered = to_edge_transform_and_lower(program, partitioner=partitioners, compile_config=unchecked)
        path.write_bytes(lowered.to_executorch().buffer)


def rewrite(program: "ExportedProgram") -> None:
    """Rewrite a program of one row, in place, so that XNNPACK runs more of it, and it lowers faster."""
    split_products(program)
    write_out_attention(program)
    multiply_by_masks(program)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def split_products(program: "ExportedProgram") -> None:
    """Replace each addcmul by a product and a sum; ExecuTorch would do so with a third operator, a product with 1."""
    for node in list(program.graph.nodes):
        if node.target in (aten.addcmul_.default, aten.addcmul.default) and len(node.args) == 3 and not node.kwargs:
            before, *factors = node.args
            calls = _Calls(node)
            calls.replace(calls(aten.add.Tensor, before, calls(aten.mul.Tensor, *factors)))


def write_out_attention(program: "ExportedProgram") -> None:
    """Replace each attention by products and a softmax of all heads.

    ExecuTorch would also set the weights of rows without any key to 0, in six operators on all scores that XNNPACK
    doesn't take; there are no such rows, see `Mask`.
    """
    for node in list(program.graph.nodes):
        if node.target is aten.scaled_dot_product_attention.default and len(node.args) <= 4 and not node.kwargs:
            calls = _Calls(node)
            query, key, value = (calls(aten.squeeze.dim, projected, 0) for projected in node.args[:3])
            query = calls(aten.mul.Tensor, query, query.meta["val"].shape[-1] ** -0.5)
            scores = calls(aten.bmm.default, query, calls(aten.transpose.int, key, 1, 2))
            if len(node.args) == 4:
                bias = node.args[3]
                if bias.meta["val"].dtype is torch.bool:
                    bias = calls(aten.where.Scalar, bias, 0.0, float("-inf"))
                scores = calls(aten.add.Tensor, scores, calls(aten.squeeze.dim, bias, 0))
            weights = calls(aten.softmax.int, scores, -1)
            calls.replace(calls(aten.unsqueeze.default, calls(aten.bmm.default, weights, value), 0))


def multiply_by_masks(program: "ExportedProgram") -> None:
    """Replace each selection of values or 0 by a product with 1 or 0."""
    for node in list(program.graph.nodes):
        if node.target is aten.masked_fill.Scalar and node.args[2] == 0 and not node.kwargs:
            values, condition, _ = node.args
            if condition.target is aten.bitwise_not.default and values.meta["val"].dtype.is_floating_point:
                calls = _Calls(node)
                factors = calls(aten.to.dtype, condition.args[0], values.meta["val"].dtype)
                calls.replace(calls(aten.mul.Tensor, values, factors))


class _Calls:
    """Inserts calls of operators before a node, which they replace."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node

    def __call__(self, operator: Any, *arguments: Any) -> fx.Node:
        with self.node.graph.inserting_before(self.node):
            call = self.node.graph.call_function(operator, arguments)
        value = operator(*fx.map_arg(arguments, lambda argument: argument.meta["val"]))
        call.meta = {**self.node.meta, "val": value}
        return call

    def replace(self, result: fx.Node) -> None:
        """Use the result instead of the node."""
        self.node.replace_all_uses_with(result)
        self.node.graph.erase_node(self.node)


def join_layers(module: fx.GraphModule) -> None:
    """Replace layers with one input by a layer with the concatenated weights, in place; each gets its part.

    In int8 every layer quantizes its input in each call, which takes a third of the time of a small one.
    """
    graph = module.graph
    groups: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.target is aten.linear.default and len(node.args) == 3:
            source, *parameters = node.args
            if all(parameter.op == "get_attr" for parameter in parameters):
                groups.setdefault(source, []).append(node)
    for number, layers in enumerate(group for group in groups.values() if len(group) > 1):
        with graph.inserting_before(layers[0]):
            parameters = []
            for index, name in enumerate((f"joined_weight_{number}", f"joined_bias_{number}"), start=1):
                nodes = [layer.all_input_nodes[index] for layer in layers]
                stored = [attrgetter(str(node.target))(module).detach() for node in nodes]
                module.register_parameter(name, nn.Parameter(torch.cat(stored), requires_grad=False))
                parameters.append(graph.get_attr(name))
                parameters[-1].meta = {"val": torch.cat([node.meta["val"] for node in nodes])}
            joined = graph.call_function(aten.linear.default, (layers[0].all_input_nodes[0], *parameters))
        joined.meta = {**layers[0].meta, "val": torch.cat([layer.meta["val"] for layer in layers], dim=-1)}
        start = 0
        for layer in layers:
            end = start + layer.meta["val"].shape[-1]
            with graph.inserting_before(layer):
                part = graph.call_function(aten.slice.Tensor, (joined, -1, start, end))
            part.meta = dict(layer.meta)
            layer.replace_all_uses_with(part)
            graph.erase_node(layer)
            start = end
    graph.eliminate_dead_code()
    module.recompile()


def quantize_tables(module: fx.GraphModule) -> None:
    """Replace the tables of all embeddings by int8 tables with one scale per row, in place.

    An embedding looks up a row of integers and the row's scale, and multiplies them.
    """
    graph = module.graph
    lookups = [node for node in graph.nodes if node.target is aten.embedding.default and node.args[0].op == "get_attr"]
    for number, node in enumerate(lookups):
        table = attrgetter(node.args[0].target)(module).detach()
        scales = table.abs().amax(1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny) / _LARGEST_INT8
        names = [f"int8_table_{number}", f"int8_scales_{number}"]
        for name, value in zip(names, ((table / scales).round().to(torch.int8), scales), strict=True):
            module.register_buffer(name, value)
        with graph.inserting_before(node):
            integers, scale = (
                graph.call_function(aten.embedding.default, (graph.get_attr(name), node.args[1])) for name in names
            )
            exact = graph.call_function(aten.to.dtype, (integers, torch.float32))
            node.replace_all_uses_with(graph.call_function(aten.mul.Tensor, (exact, scale)))
        graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()
