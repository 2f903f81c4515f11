"""The pass of compiled code: kernels add gradients, with the same results, and get the seeds as they are drawn."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.custom_graph_pass import get_hash_for_files
from torch.fx import Graph

from gpus import patch_interpreter
from lightbert import ops
from lightbert.models import build, preset
from lightbert.nn.convolution import Depthwise
from lightbert.nn.fused import install
from lightbert.nn.mask import Mask
from lightbert.ops.backend import using
from lightbert.ops.residual_norm import residual_norm
from lightbert.train import compilation, graph_pass
from lightbert.train import compilation as ahead
from lightbert.train.graph_pass import GraphPass
from randomised import randomised

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
patch_interpreter()


# Sums of gradients


class Unchanged(GraphPass):
    """Leaves sums as they are. Without any pass, the compiler's cache would not know when our operators change."""

    def __call__(self, graph):
        # Slice seeds only, so that dropout is the same.
        graph_pass.slice_seeds(graph)

    def uuid(self):
        return "unchanged", super().uuid()


def compiled_gradients(block, **options):
    """Return results and gradients of two calls of a block by the compiler's code, and the calls of both kernels."""
    from lightbert.ops.kernels import depthwise
    from lightbert.ops.kernels import residual_norm as norm

    torch.compiler.reset()
    torch.manual_seed(1)
    leaf = torch.randn(1, 16, 32, requires_grad=True)
    block.zero_grad()
    compiled = torch.compile(block, dynamic=False, options={**compilation._options(), **options})
    with (
        using("triton"),
        mock.patch.object(norm, "backward", side_effect=norm.backward) as normed,
        mock.patch.object(depthwise, "backward", side_effect=depthwise.backward) as convolved,
    ):
        out = compiled(compiled(leaf, Mask(None)), Mask(None))
        out.backward(torch.linspace(-1, 1, out.numel()).view_as(out))
    gradients = [tensor.grad.clone() for tensor in (leaf, *block.parameters())]
    sums = [call.args[9] is not None for call in normed.call_args_list]
    added = [value is not None for call in convolved.call_args_list for value in call.args[4:6]]
    return [out.detach(), *gradients], sorted(sums), added


def small_block(name, dropout):
    config = replace(preset(name), depth=1, width=32, inner=16, dropout=dropout, attention_dropout=0.0)
    block = randomised(build(config, seed=0)).train().blocks[0]
    install(block)
    return block


@pytest.mark.parametrize(("name", "dropout"), [("convbert-tiny", 0.2), ("bert-tiny", 0.0)])
def test_a_block_adds_gradients_in_its_kernels(name, dropout):
    block = small_block(name, dropout)
    results, sums, added = compiled_gradients(block)
    # Of the two norms of a block, the one before the feed-forward.
    assert sums == [False, False, True, True]
    # Gradients of a block's input: of its projections and of the residual connection.
    assert added == ([True] * 4 if name == "convbert-tiny" else [])
    expected, sums, added = compiled_gradients(block, post_grad_custom_post_pass=Unchanged())
    assert not any(sums + added)
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_lengths_that_are_symbols_are_compiled_once():
    torch.compiler.reset()
    counters.clear()
    block = small_block("convbert-tiny", 0.0)
    compiled = torch.compile(block, dynamic=True, options=compilation._options())
    with using("triton"):
        for length in (16, 24, 40):
            states = torch.randn(1, length, 32)
            leaves = [states.clone().requires_grad_() for _ in range(2)]
            for leaf, call in zip(leaves, (compiled, block), strict=True):
                call(leaf, Mask(None)).square().sum().backward()
            torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


class ReadThreeTimes(nn.Module):
    """A convolution, a linear layer and a residual connection with one input, in a chosen order."""

    def __init__(self, *order):
        super().__init__()
        self.convolution, self.layer, self.order = Depthwise(32, 3, bias=True), nn.Linear(32, 32), order

    def forward(self, x, mask):
        ways = {"convolution": lambda: self.convolution(x, mask), "layer": lambda: self.layer(x), "residual": lambda: x}
        total = torch.zeros_like(x)
        for way in self.order:
            total = total + torch.tanh(ways[way]())
        return total


@pytest.mark.parametrize("place", [0, 2])
def test_a_convolution_adds_gradients_whether_it_is_read_first_or_last(place):
    order = ["layer", "residual"]
    order.insert(place, "convolution")
    block = randomised(ReadThreeTimes(*order))
    results, _, added = compiled_gradients(block)
    assert all(added)
    expected, _, _ = compiled_gradients(block, post_grad_custom_post_pass=Unchanged())
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_code_that_was_compiled_for_other_operators_is_not_used(tmp_path):
    hashes = []
    for text in ("1", "2"):
        (tmp_path / "operator.py").write_text(text)
        with mock.patch.object(ops, "__file__", str(tmp_path / "__init__.py")):
            hashes.append(GraphPass().uuid())
        # The compiler remembers the hash of a list of files.
        get_hash_for_files.cache_clear()
    assert hashes[0] != hashes[1]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.prove
def test_kernels_with_sums_are_compiled_ahead():
    from lightbert.ops.kernels import residual_norm as norm

    model = build(replace(preset("convbert-tiny"), depth=2), seed=0).train()
    install(model)
    with using("triton"), mock.patch.object(norm, "backward", side_effect=norm.backward) as normed:
        ahead.run_blocks(model, (1, 8), "all", packed=False, half_weights=False)
    assert sorted(call.args[9] is None for call in normed.call_args_list) == 4 * [False] + 4 * [True]


# Seeds

WIDTH = 16


class Norms(nn.Module):
    """Three norms with dropout, and PyTorch's own dropout after them if there should be other random numbers."""

    def __init__(self, *, others):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))
        self.dropout = nn.Dropout(0.5 if others else 0.0)

    def forward(self, x, change):
        for _ in range(3):
            x = residual_norm(x, change, self.weight, self.bias, 1e-12, 0.5)
        return self.dropout(x)


class Recorded(GraphPass):
    """Keeps the names of what the graphs compute."""

    def __init__(self):
        self.targets = []

    def __call__(self, graph):
        super().__call__(graph)
        self.targets += [str(node.target) for node in graph.nodes if node.op == "call_function"]

    def uuid(self):
        """Never cached."""


@pytest.mark.parametrize("others", [False, True], ids=["norms only", "PyTorch's dropout as well"])
def test_kernels_get_different_seeds_and_the_same_ones_in_both_passes(others):
    from lightbert.ops.kernels import residual_norm as norm

    torch.compiler.reset()
    recorded, model = Recorded(), Norms(others=others)
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


def drawn_numbers(graph, count):
    """Draw numbers for random operations; return the node and the one of each number."""
    prims = torch.ops.prims
    drawn = graph.call_function(prims.inductor_seeds.default, (count, torch.device("cpu")))
    drawn.meta["val"] = torch.zeros(count, dtype=torch.int64)
    chosen = [graph.call_function(prims.inductor_lookup_seed.default, (drawn, index)) for index in range(count)]
    return drawn, chosen


def test_other_random_operations_keep_numbers_of_their_own():
    graph, prims = Graph(), torch.ops.prims
    drawn, chosen = drawn_numbers(graph, 2)
    seed = graph.call_function(prims.inductor_randint.default, (0, 2**31, [1], chosen[0]))
    other = graph.call_function(prims.inductor_random.default, ([4], chosen[1], "rand"))
    result = graph.output((seed, other))
    GraphPass()(graph)
    part, kept = result.args[0]
    assert (part.target, part.args) == (torch.ops.aten.slice.Tensor, (drawn, 0, 0, 1))
    assert kept.args[1].args == (drawn, 2)
    assert drawn.args[0] == 4

    # Random numbers that are not seeds are left as they are.
    graph = Graph()
    _, chosen = drawn_numbers(graph, 1)
    graph.output(graph.call_function(prims.inductor_randint.default, (0, 10, [1], chosen[0])))
    before = str(graph)
    GraphPass()(graph)
    assert str(graph) == before
