"""Embedding tables of a traced module in int8, with one scale per row."""

import torch
from torch import Tensor, fx

aten = torch.ops.aten

_LARGEST = 127.0


def quantize_tables(module: fx.GraphModule) -> int:
    """Replace the tables of all embeddings, in place; returns how many were replaced.

    An embedding looks up a row of integers and the row's scale, and multiplies them.
    """
    found = [
        node for node in module.graph.nodes if node.target is aten.embedding.default and node.args[0].op == "get_attr"
    ]
    for number, node in enumerate(found):
        rows, scales = _quantized(_attribute(module, node.args[0].target))
        names = [f"int8_table_{number}", f"int8_scales_{number}"]
        for name, value in zip(names, (rows, scales), strict=True):
            module.register_buffer(name, value)
        with module.graph.inserting_before(node):
            integers, scale = (
                module.graph.call_function(aten.embedding.default, (module.graph.get_attr(name), node.args[1]))
                for name in names
            )
            exact = module.graph.call_function(aten.to.dtype, (integers, torch.float32))
            node.replace_all_uses_with(module.graph.call_function(aten.mul.Tensor, (exact, scale)))
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    return len(found)


def _quantized(table: Tensor) -> tuple[Tensor, Tensor]:
    """Integers [N, D] and scales [N, 1] whose product is nearly the table."""
    table = table.detach()
    scales = table.abs().amax(1, keepdim=True).clamp(min=torch.finfo(table.dtype).tiny) / _LARGEST
    return (table / scales).round().to(torch.int8), scales


def _attribute(module: fx.GraphModule, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    value: Tensor = getattr(module.get_submodule(owner), name)
    return value
