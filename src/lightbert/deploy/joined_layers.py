"""Linear layers of a traced module that read the same input, as one layer.

In int8 every layer quantizes its input in each call, which takes a third of the time of a small one.
"""

from operator import attrgetter

import torch
from torch import fx, nn

aten = torch.ops.aten


def join_layers(module: fx.GraphModule) -> None:
    """Replace layers with one input by a layer with the concatenated weights, in place; each gets its part."""
    for number, layers in enumerate(_together(module)):
        joined = _joined(module, layers, number)
        start = 0
        for layer in layers:
            end = start + layer.meta["val"].shape[-1]
            with module.graph.inserting_before(layer):
                part = module.graph.call_function(aten.slice.Tensor, (joined, -1, start, end))
            part.meta = dict(layer.meta)
            layer.replace_all_uses_with(part)
            module.graph.erase_node(layer)
            start = end
    module.graph.eliminate_dead_code()
    module.recompile()


def _together(module: fx.GraphModule) -> list[list[fx.Node]]:
    """The layers with stored weights and biases, two or more for each input."""
    groups: dict[fx.Node, list[fx.Node]] = {}
    for node in module.graph.nodes:
        if node.target is aten.linear.default and len(node.args) == 3:
            source, *parameters = node.args
            if all(each.op == "get_attr" for each in parameters):
                groups.setdefault(source, []).append(node)
    return [layers for layers in groups.values() if len(layers) > 1]


def _joined(module: fx.GraphModule, layers: list[fx.Node], number: int) -> fx.Node:
    """Insert the layer with all weights before the first one."""
    graph, names = module.graph, (f"joined_weight_{number}", f"joined_bias_{number}")
    with graph.inserting_before(layers[0]):
        parameters = []
        for index, name in enumerate(names, start=1):
            given = [layer.all_input_nodes[index] for layer in layers]
            stored = [attrgetter(str(each.target))(module).detach() for each in given]
            module.register_parameter(name, nn.Parameter(torch.cat(stored), requires_grad=False))
            parameters.append(graph.get_attr(name))
            parameters[-1].meta = {"val": torch.cat([each.meta["val"] for each in given])}
        joined = graph.call_function(aten.linear.default, (layers[0].all_input_nodes[0], *parameters))
    joined.meta = {**layers[0].meta, "val": torch.cat([layer.meta["val"] for layer in layers], dim=-1)}
    return joined
