"""Compiled blocks let the kernels of norms and depthwise convolutions add gradients, with the same results."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
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
from lightbert.train import compilation, graph_pass
from lightbert.train import kernels_ahead as ahead
from lightbert.train.graph_pass import GraphPass
from randomised import randomised

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
patch_interpreter()


class Unchanged(GraphPass):
    """Leaves sums as they are. Without any pass, the compiler's cache would not know when our operators change."""

    def __call__(self, graph: Graph) -> None:
        """Only slice seeds, so that dropout is the same."""
        graph_pass.slice_seeds(graph)

    def uuid(self) -> object:
        return "unchanged", super().uuid()


def compiled_gradients(block: nn.Module, **options: object) -> tuple[list[Tensor], mock.Mock, mock.Mock]:
    """The results and gradients of two calls of a block by the compiler's own code, and the calls of both kernels."""
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
    return [out.detach(), *(each.grad.clone() for each in (leaf, *block.parameters()))], normed, convolved


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("name", ["convbert-tiny", "bert-tiny"])
def test_a_block_adds_gradients_in_its_kernels(name: str, dropout: float) -> None:
    config = replace(preset(name), depth=1, width=32, inner=16, dropout=dropout, attention_dropout=0.0)
    block = randomised(build(config, seed=0)).train().blocks[0]
    install(block)
    found, normed, convolved = compiled_gradients(block)
    # Of the two norms of a block, the one before the feed-forward.
    assert sorted(call.args[9] is None for call in normed.call_args_list) == [False, False, True, True]
    # Gradients of a block's input: of its projections and of the residual connection.
    assert len(convolved.call_args_list) == (2 if name == "convbert-tiny" else 0)
    assert all(each is not None for call in convolved.call_args_list for each in call.args[4:6])
    expected, normed, convolved = compiled_gradients(block, post_grad_custom_post_pass=Unchanged())
    assert all(call.args[9] is None for call in normed.call_args_list)
    assert all(each is None for call in convolved.call_args_list for each in call.args[4:6])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_lengths_that_are_symbols_are_compiled_once() -> None:
    torch.compiler.reset()
    counters.clear()
    config = replace(preset("convbert-tiny"), depth=1, width=32, inner=16, dropout=0.0, attention_dropout=0.0)
    block = randomised(build(config, seed=0)).train().blocks[0]
    install(block)
    compiled = torch.compile(block, dynamic=True, options=compilation._options())
    with using("triton"):
        for length in (16, 24, 40):
            given = torch.randn(1, length, 32)
            found, expected = (given.clone().requires_grad_() for _ in range(2))
            for leaf, call in ((found, compiled), (expected, block)):
                call(leaf, Mask(None)).square().sum().backward()
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


class ReadThreeTimes(nn.Module):
    """A convolution, a linear layer and a residual connection with one input, in a chosen order."""

    def __init__(self, *order: str) -> None:
        super().__init__()
        self.convolution, self.layer, self.order = Depthwise(32, 3, bias=True), nn.Linear(32, 32), order

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Add what each of them returns."""
        ways = {"convolution": lambda: self.convolution(x, mask), "layer": lambda: self.layer(x), "residual": lambda: x}
        total = torch.zeros_like(x)
        for way in self.order:
            total = total + torch.tanh(ways[way]())
        return total


@pytest.mark.parametrize("order", [*permutations(("convolution", "layer", "residual"))], ids="-".join)
def test_a_convolution_adds_gradients_in_any_order(order: tuple[str, ...]) -> None:
    block = randomised(ReadThreeTimes(*order))
    found, _, convolved = compiled_gradients(block)
    assert all(each is not None for call in convolved.call_args_list for each in call.args[4:6])
    expected, _, _ = compiled_gradients(block, post_grad_custom_post_pass=Unchanged())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_code_that_was_compiled_for_other_operators_is_not_used(tmp_path: Path) -> None:
    found = []
    for text in ("1", "2"):
        (tmp_path / "operator.py").write_text(text)
        with mock.patch.object(ops, "__file__", str(tmp_path / "__init__.py")):
            found.append(GraphPass().uuid())
        # The compiler remembers the hash of a list of files.
        get_hash_for_files.cache_clear()
    assert found[0] != found[1]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.prove
def test_kernels_with_sums_are_compiled_ahead() -> None:
    from lightbert.ops.kernels import residual_norm as norm

    model = build(replace(preset("convbert-tiny"), depth=2), seed=0).train()
    install(model)
    with using("triton"), mock.patch.object(norm, "backward", side_effect=norm.backward) as normed:
        ahead.run_blocks(model, (1, 8), "all", packed=False, half_weights=False)
    assert sorted(call.args[9] is None for call in normed.call_args_list) == 4 * [False] + 4 * [True]
