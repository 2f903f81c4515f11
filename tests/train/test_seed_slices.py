"""Compiled code draws the seeds of all kernels at once, and kernels get them as they are."""

from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph

from gpus import patch_interpreter
from lightbert.ops.backend import using
from lightbert.ops.residual_norm import residual_norm
from lightbert.train import compilation
from lightbert.train.graph_pass import GraphPass

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
patch_interpreter()

WIDTH = 16


class Norms(nn.Module):
    """Norms with dropout, and PyTorch's own dropout after them if there should be other random numbers."""

    def __init__(self, count: int, *, others: bool) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.count, self.dropout = count, nn.Dropout(0.5 if others else 0.0)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        """Add the change several times."""
        for _ in range(self.count):
            x = residual_norm(x, change, self.weight, self.bias, 1e-12, 0.5)
        return self.dropout(x)


class Recorded(GraphPass):
    """Keeps the names of what the graphs compute."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    def __call__(self, graph: Graph) -> None:
        """Run the pass."""
        super().__call__(graph)
        self.targets += [str(node.target) for node in graph.nodes if node.op == "call_function"]

    def uuid(self) -> None:
        """Never cached."""


@pytest.mark.parametrize("others", [False, True], ids=["norms only", "PyTorch's dropout as well"])
def test_kernels_get_different_seeds_and_the_same_ones_in_both_passes(others: bool) -> None:
    from lightbert.ops.kernels import residual_norm as norm

    torch.compiler.reset()
    recorded, model = Recorded(), Norms(3, others=others)
    compiled = torch.compile(model, options={**compilation._options(), "post_grad_custom_post_pass": recorded})
    x, change = (torch.randn(5, WIDTH, requires_grad=True) for _ in range(2))
    steps = []
    with (
        using("triton"),
        mock.patch.object(norm, "forward", side_effect=norm.forward) as forward,
        mock.patch.object(norm, "backward", side_effect=norm.backward) as backward,
    ):
        for _ in range(2):
            compiled(x, change).sum().backward()
            seeds = [call.args[5] for call in forward.call_args_list]
            assert [seed.item() for seed in seeds] == [call.args[6].item() for call in backward.call_args_list][::-1]
            assert all(seed.shape == (1,) and seed.data_ptr() % 16 == 0 for seed in seeds)
            steps.append([seed.item() for seed in seeds])
            forward.reset_mock()
            backward.reset_mock()
    assert len({*steps[0], *steps[1]}) == 6
    assert not any("inductor_randint" in target for target in recorded.targets)
    assert any("inductor_random" in target for target in recorded.targets) == others


def test_the_numbers_of_other_random_operations_are_not_those_of_seeds() -> None:
    numbers = Graph()
    prims = torch.ops.prims
    drawn = numbers.call_function(prims.inductor_seeds.default, (2, torch.device("cpu")))
    drawn.meta["val"] = torch.zeros(2, dtype=torch.int64)
    chosen = [numbers.call_function(prims.inductor_lookup_seed.default, (drawn, index)) for index in range(2)]
    seed = numbers.call_function(prims.inductor_randint.default, (0, 2**31, [1], chosen[0]))
    other = numbers.call_function(prims.inductor_random.default, ([4], chosen[1], "rand"))
    result = numbers.output((seed, other))
    GraphPass()(numbers)
    part, kept = result.args[0]
    assert (part.target, part.args) == (torch.ops.aten.slice.Tensor, (drawn, 0, 0, 1))
    assert kept.args[1].args == (drawn, 2)
    assert drawn.args[0] == 4


def test_random_numbers_that_are_no_seeds_are_left_as_they_are() -> None:
    numbers = Graph()
    prims = torch.ops.prims
    drawn = numbers.call_function(prims.inductor_seeds.default, (1, torch.device("cpu")))
    chosen = numbers.call_function(prims.inductor_lookup_seed.default, (drawn, 0))
    numbers.output(numbers.call_function(prims.inductor_randint.default, (0, 10, [1], chosen)))
    before = str(numbers)
    GraphPass()(numbers)
    assert str(numbers) == before
