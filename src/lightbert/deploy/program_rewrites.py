"""Rewrites of a traced program of one row, in place, for ExecuTorch: XNNPACK runs more of it, and it lowers faster.

Operators that XNNPACK doesn't take run one by one in ExecuTorch's own kernels, and every operator takes a tenth of a
second to lower.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten


def rewrite(program: "ExportedProgram") -> None:
    """Apply all rewrites of this module."""
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
            query, key, value = (calls(aten.squeeze.dim, each, 0) for each in node.args[:3])
            query = calls(aten.mul.Tensor, query, query.meta["val"].shape[-1] ** -0.5)
            scores = calls(aten.bmm.default, query, calls(aten.transpose.int, key, 1, 2))
            if len(node.args) == 4:
                scores = calls(aten.add.Tensor, scores, _bias(calls, node.args[3]))
            weights = calls(aten.softmax.int, scores, -1)
            calls.replace(calls(aten.unsqueeze.default, calls(aten.bmm.default, weights, value), 0))


def _bias(calls: "_Calls", mask: fx.Node) -> fx.Node:
    if mask.meta["val"].dtype is torch.bool:
        mask = calls(aten.where.Scalar, mask, 0.0, float("-inf"))
    return calls(aten.squeeze.dim, mask, 0)


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
        value = operator(*fx.map_arg(arguments, lambda each: each.meta["val"]))
        call.meta = {**self.node.meta, "val": value}
        return call

    def replace(self, result: fx.Node) -> None:
        """Use the result instead of the node."""
        self.node.replace_all_uses_with(result)
        self.node.graph.erase_node(self.node)
