"""Our pass of torch.compile, over the graphs of forward and backward passes.

Sums of gradients: what a norm returns is read by a product and by a residual connection, so that its gradient is a sum,
and the kernel of its backward pass reads both parts. What a depthwise convolution reads is also read by products and a
residual connection: its backward kernel adds their gradients to its own. Each saves two passes over all tokens.

Seeds: a kernel with dropout has a seed, ``torch.randint(2**31, (1,))``. The compiler draws a number for each random
operation of a graph, all by one kernel, and makes each seed from its number by another kernel. The numbers are as
random, and our kernels read them where they are.
"""

from collections.abc import Iterator
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.pattern_matcher import stable_topological_sort
from torch.fx import Graph, Node

from lightbert import ops


def add_in_kernels(graph: Graph) -> None:
    """Let the kernels of norms do the additions before them, those of depthwise convolutions the ones after them."""
    for norm in _calls(graph, "residual_norm_backward"):
        total = norm.args[0]
        if isinstance(total, Node) and _is_plain_sum(total) and len(total.users) == 1:
            grad, more = total.args
            _set_inputs(norm, grad, more_grad=more)
            graph.erase_node(total)
    for convolution in _calls(graph, "depthwise_backward"):
        _add_afterwards(convolution)


def _calls(graph: Graph, name: str) -> Iterator[Node]:
    """The calls of one of our operators, if it has been registered."""
    operator = getattr(torch.ops.lightbert, name, None)
    yield from () if operator is None else graph.find_nodes(op="call_function", target=operator.default)


def _add_afterwards(convolution: Node) -> None:
    """Let a convolution's backward kernel add up to two more gradients of its input."""
    results = [node for node in convolution.users if node.target is getitem and node.args[1] == 0]
    if len(results) != 1:
        return
    (result,) = results
    added: list[Node] = []
    while len(added) < 2 and len(result.users) == 1:
        (total,) = result.users
        if not _is_plain_sum(total):
            break
        (other,) = (node for node in total.args if isinstance(node, Node) and node is not result)
        if _depends(other, convolution):
            break
        is_sum = not added and _is_plain_sum(other) and len(other.users) == 1
        added += other.all_input_nodes if is_sum else [other]
        total.replace_all_uses_with(result)
        total.graph.erase_node(total)
        if is_sum:
            other.graph.erase_node(other)
    if added:
        _set_inputs(convolution, convolution.args[0], **dict(zip(("more", "and_more"), added, strict=False)))


def _depends(node: Node, on: Node) -> bool:
    """Whether a node is computed from another one."""
    seen, left = set(), [node]
    while left:
        current = left.pop()
        if current is on:
            return True
        if current not in seen:
            seen.add(current)
            left += current.all_input_nodes
    return False


def _set_inputs(call: Node, first: Any, **inputs: Any) -> None:
    """Set the first argument of a call and further keyword arguments."""
    call.args, call.kwargs = (first, *call.args[1:]), {**call.kwargs, **inputs}
    # The compiler gives an operator the inputs in this list only, in the memory layout that they have there.
    args, kwargs = call.meta.get("eager_input_vals", ((), {}))
    if args:
        values = {name: node.meta["val"] for name, node in inputs.items()}
        call.meta["eager_input_vals"] = ((first.meta["val"], *args[1:]), {**kwargs, **values})


def _is_plain_sum(node: Node) -> bool:
    """Whether a node adds two different tensors of its own shape and dtype."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs or node.args[0] is node.args[1]:
        return False
    kinds = [_kind(value) for value in (node, *node.args)]
    # Sizes that are symbols have no hash.
    return None not in kinds and all(kind == kinds[0] for kind in kinds)


def _kind(value: Any) -> tuple[torch.Size, torch.dtype] | None:
    """The shape and the dtype of a tensor in a graph."""
    tensor = value.meta.get("val") if isinstance(value, Node) else None
    return (tensor.shape, tensor.dtype) if isinstance(tensor, Tensor) else None


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


class GraphPass(CustomGraphPass):
    """Fewer kernels between our own."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        add_in_kernels(graph)
        slice_seeds(graph)
        stable_topological_sort(graph)

    def uuid(self) -> Any:
        """What the compiler's cache knows this pass by.

        It also stands for our operators: compiled code contains the shapes of their results, which the cache doesn't
        compare.
        """
        operators = sorted(map(str, Path(ops.__file__).parent.rglob("*.py")))
        return get_hash_for_files((__file__, *operators))
