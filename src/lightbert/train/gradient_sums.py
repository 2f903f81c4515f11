"""A pass of torch.compile: the backward pass of a norm reads the parts of a gradient instead of their sum.

What a norm returns is read by a product and by a residual connection, so that its gradient is a sum. The compiler adds
both parts with a kernel of its own, which writes the sum for the norm's kernel to read. Without it, a block's backward
pass saves two passes over all tokens.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from lightbert import ops


class GradientSums(CustomGraphPass):
    """Let the kernels of norms do the additions before them."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        for norm in _norms(graph):
            total = norm.args[0]
            if isinstance(total, Node) and _is_plain_sum(total) and len(total.users) == 1:
                _add_in_kernel(norm, *total.args)
                graph.erase_node(total)

    def uuid(self) -> Any:
        """What the compiler's cache knows this pass by.

        It also stands for our operators: compiled code contains the shapes of their results, which the cache doesn't
        compare.
        """
        operators = sorted(map(str, Path(ops.__file__).parent.rglob("*.py")))
        return get_hash_for_files((__file__, *operators))


def _norms(graph: Graph) -> Iterator[Node]:
    """The calls of the norm's backward operator, if it has been registered."""
    found = getattr(torch.ops.lightbert, "residual_norm_backward", None)
    yield from () if found is None else graph.find_nodes(op="call_function", target=found.default)


def _add_in_kernel(norm: Node, grad: Any, more: Any) -> None:
    """Give a norm both parts of its gradient."""
    norm.args = (grad, *norm.args[1:])
    norm.kwargs = {**norm.kwargs, "more_grad": more}
    # The compiler gives an operator the inputs in this list only, in the memory layout that they have there.
    args, kwargs = norm.meta.get("eager_input_vals", ((), {}))
    if args:
        parts = grad.meta["val"], more.meta["val"]
        norm.meta["eager_input_vals"] = ((parts[0], *args[1:]), {**kwargs, "more_grad": parts[1]})


def _is_plain_sum(node: Node) -> bool:
    """Whether a node adds two different tensors of its own shape and dtype."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs or node.args[0] is node.args[1]:
        return False
    kinds = [_kind(each) for each in (node, *node.args)]
    return None not in kinds and len({*kinds}) == 1


def _kind(value: Any) -> tuple[torch.Size, torch.dtype] | None:
    """The shape and the dtype of a tensor in a graph."""
    found = value.meta.get("val") if isinstance(value, Node) else None
    return (found.shape, found.dtype) if isinstance(found, Tensor) else None
