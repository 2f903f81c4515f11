"""A step of our pass of torch.compile: the seeds of kernels are slices of one tensor.

A kernel with dropout has a seed, ``torch.randint(2**31, (1,))``. The compiler draws a number for each random operation
of a graph, all by one kernel, and makes each seed from its number by another kernel. The numbers are as random, and our
kernels read them where they are.
"""

from typing import Any

import torch
from torch.fx import Graph, Node

_SEEDS = 2**31
_EVERY = 2
"""Places from one seed to the next: 16 bytes, to which the compiler expects tensors to be aligned."""


def slice_seeds(graph: Graph) -> None:
    """Replace seeds by slices of the numbers that the compiler draws."""
    prims = torch.ops.prims
    numbers: Any
    for numbers in graph.find_nodes(op="call_function", target=prims.inductor_seeds.default):
        chosen = [node for node in numbers.users if node.target is prims.inductor_lookup_seed.default]
        seeds = [seed for node in chosen for seed in node.users if _is_seed(seed)]
        if not seeds or len(chosen) < len(numbers.users):
            continue
        count, device = numbers.args
        numbers.args = (_EVERY * count, device)
        numbers.meta["val"] = numbers.meta["val"].new_empty(_EVERY * count)
        for node in chosen:
            node.args = (numbers, _EVERY * node.args[1])
        for seed in seeds:
            _replace(seed, numbers)


def _is_seed(node: Any) -> bool:
    """Whether a node draws a seed, as our operators do."""
    drawn = torch.ops.prims.inductor_randint.default
    return node.target is drawn and node.args[:2] == (0, _SEEDS) and list(node.args[2]) == [1]


def _replace(seed: Node, numbers: Node) -> None:
    graph = seed.graph
    chosen: Any = seed.args[3]
    place = chosen.args[1]
    with graph.inserting_before(seed):
        part = graph.call_function(torch.ops.aten.slice.Tensor, (numbers, 0, place, place + 1))
    part.meta["val"] = numbers.meta["val"][place : place + 1]
    seed.replace_all_uses_with(part)
    graph.erase_node(seed)
    if not chosen.users:
        graph.erase_node(chosen)
