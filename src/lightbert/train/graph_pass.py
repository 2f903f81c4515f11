"""Our pass of torch.compile, over the graphs of forward and backward passes."""

from pathlib import Path
from typing import Any

from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.pattern_matcher import stable_topological_sort
from torch.fx import Graph

from lightbert import ops
from lightbert.train import gradient_sums, seed_slices


class GraphPass(CustomGraphPass):
    """Fewer kernels between our own: see the modules of its steps."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        gradient_sums.add_in_kernels(graph)
        seed_slices.slice_seeds(graph)
        stable_topological_sort(graph)

    def uuid(self) -> Any:
        """What the compiler's cache knows this pass by.

        It also stands for our operators: compiled code contains the shapes of their results, which the cache doesn't
        compare.
        """
        operators = sorted(map(str, Path(ops.__file__).parent.rglob("*.py")))
        steps = (gradient_sums.__file__, seed_slices.__file__)
        return get_hash_for_files((__file__, *map(str, steps), *operators))
