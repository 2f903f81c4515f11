"""Embedding tables of a traced module in int8, with one scale per row."""

from operator import attrgetter

import torch
from torch import Tensor, fx

aten = torch.ops.aten

_LARGEST = 127.0


def quantize_tables(module: fx.GraphModule) -> None:
    """Replace the tables of all embeddings, in place.

    An embedding looks up a row of integers and the row's scale, and multiplies them.
    """
    graph = module.graph
    found = [node for node in graph.nodes if node.target is aten.embedding.default and node.args[0].op == "get_attr"]
    for number, node in enumerate(found):
        names = [f"int8_table_{number}", f"int8_scales_{number}"]
        for name, value in zip(names, _quantized(attrgetter(node.args[0].target)(module)), strict=True):
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


def _quantized(table: Tensor) -> tuple[Tensor, Tensor]:
    """Integers [N, D] and scales [N, 1] whose product is nearly the table."""
    table = table.detach()
    scales = table.abs().amax(1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny) / _LARGEST
    return (table / scales).round().to(torch.int8), scales
