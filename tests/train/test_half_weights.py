"""Weights cast together train like weights that autocast casts layer by layer, here in bf16 on a CPU."""

from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, records, train, write_model
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightbert.data.shards import Shards
from lightbert.nn.convolution import DynamicConvolution
from lightbert.nn.feedforward import FeedForward, GroupedLinear
from lightbert.nn.fused import install
from lightbert.nn.norms import layer_norm
from lightbert.ops.backend import using
from lightbert.ops.residual_norm import residual_norm
from lightbert.train.step import HalfWeights, Step

compile_module = nn.Module.compile


@pytest.fixture(autouse=True)
def bf16_on_a_cpu():
    with mock.patch.object(Step, "half_precision", True):
        yield


def without_half_weights():
    return mock.patch("lightbert.train.step.HalfWeights", return_value=None)


def layers():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), GroupedLinear(6, 4, 2), nn.Linear(4, 3, bias=False))
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def backward(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().square().sum()
    loss.backward()


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("accumulate", "groups"), [(1, 2), (2, 1)])
def test_runs_are_identical(corpus, tmp_path, accumulate, groups):
    model = write_model(tmp_path / "model", Shards(corpus / "data").vocab, groups=groups)
    settings = {"steps": 4, "accumulate": accumulate, "model": str(model)}
    train(recipe_of(corpus, tmp_path / "together", **settings))
    with without_half_weights():
        train(recipe_of(corpus, tmp_path / "by layer", **settings))
    assert_same_results(tmp_path / "together", tmp_path / "by layer")


def test_compiled_blocks_use_the_copies_without_more_graphs(corpus, tmp_path):
    model = write_model(tmp_path / "model", Shards(corpus / "data").vocab, depth=3, dropout=0.0, attention_dropout=0.0)

    def run(name):
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        settings = {"model": str(model), "objective": "mlm", "steps": 3, "evaluate_every": 0}
        train(recipe_of(corpus, tmp_path / name, compile="blocks", **settings))
        losses = [record["loss"] for record in records(tmp_path / name)]
        return losses, torch._dynamo.utils.counters["stats"]["unique_graphs"]

    # The backend traces forward and backward, but generates no code, which is slow.
    traced = mock.patch.object(
        nn.Module, "compile", lambda part, **how: compile_module(part, backend="aot_eager", **how)
    )
    with traced:
        together, graphs = run("together")
        with without_half_weights():
            by_layer, usual_graphs = run("by layer")
    torch.compiler.reset()
    assert together == pytest.approx(by_layer, rel=1e-3)
    assert graphs == usual_graphs


def test_all_weights_are_cast_by_one_call_each_way():
    model, calls = layers(), []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append((function._schema.name, args[0] if args else None))
            return function(*args, **(kwargs or {}))

    own = {parameter.data_ptr() for parameter in model.parameters()}
    with Recorder(), HalfWeights(model).installed():
        backward(model, torch.randn(5, 4))
    # The norm is computed in fp32.
    assert [tensor for name, tensor in calls if name == "aten::_to_copy" and tensor.data_ptr() in own] == []
    assert [len(tensors) for name, tensors in calls if name == "aten::_foreach_copy_"] == [5, 5]


def test_gradients_accumulate_in_single_precision():
    model, usual, x = layers(), layers(), torch.randn(5, 4)
    for _ in range(3):
        with HalfWeights(model).installed():
            backward(model, x)
        backward(usual, x)
    expected = gradients(usual)
    for name, gradient in gradients(model).items():
        assert gradient.dtype is torch.float32
        assert torch.equal(gradient, expected[name])


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_the_kernels_read_half_biases_and_their_gradients_reach_the_parameters():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    part = FeedForward(8, 12, activation="gelu", norm=layer_norm(1e-12))
    install(part)
    for parameter in part.parameters():
        nn.init.normal_(parameter)
    x, runs = torch.randn(2, 5, 8), []
    for implementation in ("torch", "triton"):
        part.zero_grad()
        with (
            mock.patch("lightbert.ops.residual_norm.residual_norm", side_effect=residual_norm) as kernel,
            using(implementation),
            HalfWeights(part).installed(),
        ):
            backward(part, x)
        runs.append(gradients(part))
    assert kernel.call_args.kwargs["change_bias"].dtype is torch.bfloat16
    for name, gradient in runs[1].items():
        assert gradient.dtype is torch.float32
        expected = runs[0][name]
        assert (gradient - expected).norm() <= 0.03 * expected.norm(), name


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_the_kernel_layer_of_a_convolution_is_padded_in_its_copy():
    part = DynamicConvolution(8, 8, 2, 3)
    install(part)
    for parameter in part.parameters():
        nn.init.normal_(parameter)
    x, runs = torch.randn(2, 5, 8), []

    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = part

        def forward(self, states):
            # Only the layers run as on a GPU; the op itself needs no kernel.
            query = states.bfloat16()
            return torch.cat([part.logits(query)[..., :3].flatten(1), part.value(query).flatten(1)], dim=1)

    for padded in (False, True):
        part.zero_grad()
        with using("triton" if padded else "torch"):
            weights = HalfWeights(part)
            for _ in range(2):
                with weights.installed():
                    rows = len(part.kernel.weight)
                    backward(Convolution(), x)
        runs.append(gradients(part))
        assert rows == (16 if padded else 6)
        assert len(part.kernel.weight) == 6
    for name, gradient in runs[1].items():
        assert torch.equal(gradient, runs[0][name]), name


def test_a_frozen_layer_gets_no_gradient_and_parameters_are_restored_after_an_error():
    model = layers()
    model[0].requires_grad_(False)
    with HalfWeights(model).installed():
        assert not model[0].weight.requires_grad
        assert model[0].weight.dtype is torch.bfloat16
        backward(model, torch.randn(5, 4))
    assert [name for name, gradient in gradients(model).items() if gradient is None] == ["0.weight", "0.bias"]

    before = dict(model.named_parameters())
    with pytest.raises(ValueError, match="in the forward pass"), HalfWeights(model).installed():
        raise ValueError("in the forward pass")
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
