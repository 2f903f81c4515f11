"""Compiled blocks let the kernels of norms add the parts of a gradient, with the same results."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from gpus import patch_interpreter
from lightbert.models import build, preset
from lightbert.nn.mask import Mask
from lightbert.ops.backend import using
from lightbert.train import compilation
from lightbert.train import kernels_ahead as ahead
from randomised import randomised

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
patch_interpreter()


def compiled_gradients(block: nn.Module, **removed: None) -> tuple[list[Tensor], mock.Mock]:
    """The results and gradients of two calls of a block by the compiler's own code, and the calls of norms."""
    from lightbert.ops.residual_norm import triton as norm

    torch.compiler.reset()
    torch.manual_seed(1)
    leaf = torch.randn(1, 16, 32, requires_grad=True)
    block.zero_grad()
    compiled = torch.compile(block, dynamic=False, options={**compilation._options(), **removed})
    with using("triton"), mock.patch.object(norm, "backward", side_effect=norm.backward) as normed:
        out = compiled(compiled(leaf, Mask(None)), Mask(None))
        out.backward(torch.linspace(-1, 1, out.numel()).view_as(out))
    return [out.detach(), *(each.grad.clone() for each in (leaf, *block.parameters()))], normed


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("name", ["convbert-tiny", "bert-tiny"])
def test_a_block_adds_gradients_in_the_kernel_of_its_norm(name: str, dropout: float) -> None:
    config = replace(preset(name), depth=1, width=32, inner=16, dropout=dropout, attention_dropout=0.0)
    block = randomised(build(config, seed=0)).train().blocks[0]
    found, normed = compiled_gradients(block)
    # Of the two norms of a block, the one before the feed-forward.
    assert sorted(call.args[9] is None for call in normed.call_args_list) == [False, False, True, True]
    expected, normed = compiled_gradients(block, post_grad_custom_post_pass=None)
    assert all(call.args[9] is None for call in normed.call_args_list)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_kernels_with_sums_are_compiled_ahead() -> None:
    from lightbert.ops.residual_norm import triton as norm

    model = build(replace(preset("convbert-tiny"), depth=2), seed=0).train()
    with using("triton"), mock.patch.object(norm, "backward", side_effect=norm.backward) as normed:
        ahead.run_blocks(model, (1, 8), "all", packed=False, half_weights=False)
    assert sorted(call.args[9] is None for call in normed.call_args_list) == 4 * [False] + 4 * [True]
