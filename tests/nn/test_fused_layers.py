"""Kernels that replace layers: the same result and gradients, and layers that aren't plain are called."""

import copy
from typing import Any
from unittest import mock

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd

from extras import needs_kernels
from gpus import patch_interpreter
from lightbert.models import add_head, build
from lightbert.nn.attention import SelfAttention, Terms
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.convolution import DynamicConvolution, SeparableConvolution, SpanConvolution
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.feedforward import FeedForward, linear
from lightbert.nn.fused import (
    _FUSED,
    add_and_norm,
    install,
    look_up,
    project_add_and_norm,
    project_and_activate,
    project_fused,
    project_large,
    project_weights,
)
from lightbert.nn.heads import MaskedLanguage, ReplacedToken
from lightbert.nn.mask import Mask
from lightbert.nn.norms import NoNorm, Norm, layer_norm
from lightbert.nn.record import Record
from lightbert.ops.backend import using
from lightbert.ops.bias_gelu import gelu_linear
from lightbert.ops.joined_attention import joined_attention
from lightbert.ops.mixed_heads import mixed_heads
from lightbert.ops.relu_feedforward import relu_feedforward
from randomised import randomised

patch_interpreter()


def composite(
    width: int,
    n_heads: int,
    value_width: int | None = None,
    fixed: bool = True,
    query_dynamic: bool = True,
    **terms: Any,
) -> SelfAttention:
    """Composite attention with a radius of one."""
    return SelfAttention(width, n_heads, value_width=value_width, terms=Terms(1, fixed, query_dynamic, **terms))


WIDTH = 8
NO_MASK = Mask(None)


def fused(part: nn.Module) -> nn.Module:
    """The part with kernels, its weights random."""
    install(randomised(part))
    return part


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, output: output + 1)
    return layer


def replaced(layer: nn.Module) -> nn.Module:
    call = layer.forward
    layer.forward = lambda x: call(x) + 1
    return layer


def of_a_subclass(layer: nn.Module) -> nn.Module:
    layer.__class__ = type("Adapted", (type(layer),), {})
    return layer


CHANGES = (hooked, replaced, of_a_subclass)


@pytest.fixture
def kernels() -> mock.Mock:
    """Stand-ins for the ops, as if their kernels were available."""
    calls = mock.Mock(return_value="by a kernel")
    with (
        mock.patch.multiple("lightbert.ops.residual_norm", has_kernel=lambda *_: True, residual_norm=calls),
        mock.patch.multiple("lightbert.ops.bias_gelu", has_kernel=lambda *_: True, bias_gelu=calls),
        mock.patch.multiple("lightbert.nn.fused", on_gpu=lambda _: True, embedding=calls),
    ):
        yield calls


X = torch.randn(2, 3, WIDTH)


def test_plain_layers_are_replaced(kernels):
    assert add_and_norm(X, X, nn.LayerNorm(WIDTH)) == "by a kernel"
    assert add_and_norm(X, X, nn.LayerNorm(WIDTH), nn.Dropout(0.0)) == "by a kernel"
    assert add_and_norm(X, X, nn.LayerNorm(WIDTH), nn.Dropout(0.5).eval()) == "by a kernel"
    assert add_and_norm(X, X, nn.LayerNorm(WIDTH), nn.Dropout(0.5).train()) == "by a kernel"
    layer = nn.Linear(WIDTH, WIDTH)
    assert project_add_and_norm(X, X, layer, nn.LayerNorm(WIDTH), nn.Dropout(0.5).train()) == "by a kernel"
    assert kernels.call_args.kwargs["change_bias"] is layer.bias
    assert project_and_activate(X, nn.Linear(WIDTH, 4), nn.GELU()) == "by a kernel"
    assert look_up(nn.Embedding(5, 4), torch.tensor([1])) == "by a kernel"


@pytest.mark.parametrize(("dropout", "rate"), [(None, 0.0), (nn.Dropout(0.5), 0.5), (nn.Dropout(0.5).eval(), 0.0)])
def test_the_kernel_gets_the_dropout_of_the_layer(kernels, dropout, rate):
    add_and_norm(X, X, nn.LayerNorm(WIDTH), dropout)
    project_add_and_norm(X, X, nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), dropout)
    assert [call.args[-1] for call in kernels.call_args_list] == [rate, rate]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_layers_are_called(kernels, change):
    add_and_norm(X, X, change(nn.LayerNorm(WIDTH)))
    add_and_norm(X, X, nn.LayerNorm(WIDTH), change(nn.Dropout(0.0)))
    add_and_norm(X, X, nn.LayerNorm(WIDTH), change(nn.Dropout(0.5)))
    project_add_and_norm(X, X, nn.Linear(WIDTH, WIDTH), change(nn.LayerNorm(WIDTH)))
    project_add_and_norm(X, X, nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), change(nn.Dropout(0.5)))
    project_and_activate(X, change(nn.Linear(WIDTH, 4)), nn.GELU())
    project_and_activate(X, nn.Linear(WIDTH, 4), change(nn.GELU()))
    look_up(change(nn.Embedding(5, 4)), torch.tensor([1]))
    kernels.assert_not_called()


def test_layers_that_compute_something_else_are_called(kernels):
    add_and_norm(X, X, NoNorm(WIDTH))
    add_and_norm(X, X, nn.LayerNorm(WIDTH, elementwise_affine=False))
    add_and_norm(X, X, nn.LayerNorm(WIDTH), nn.Dropout(1.0).train())
    project_add_and_norm(X, X, nn.Linear(WIDTH, WIDTH), NoNorm(WIDTH))
    project_add_and_norm(X, X, nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Dropout(1.0).train())
    project_and_activate(X, nn.Linear(WIDTH, 4, bias=False), nn.GELU())
    project_and_activate(X, nn.Linear(WIDTH, 4), nn.GELU(approximate="tanh"))
    project_and_activate(X, nn.Linear(WIDTH, 4), nn.ReLU())
    look_up(nn.Embedding(5, 4, padding_idx=0), torch.tensor([1]))
    kernels.assert_not_called()


@pytest.mark.parametrize(
    "layer",
    [
        *(change(nn.Linear(WIDTH, WIDTH)) for change in CHANGES),
        nn.Linear(WIDTH, WIDTH, bias=False),
    ],
    ids=[*(change.__name__ for change in CHANGES), "without a bias"],
)
def test_the_kernel_gets_the_output_of_a_layer_that_is_not_plain(kernels, layer):
    layer = randomised(layer)
    assert project_add_and_norm(X, X, layer, nn.LayerNorm(WIDTH)) == "by a kernel"
    _, change, *_ = kernels.call_args.args
    torch.testing.assert_close(change, layer(X))
    assert kernels.call_args.kwargs == {"change_bias": None}


def test_the_kernels_add_the_biases_of_grouped_layers(kernels):
    layer = randomised(linear(WIDTH, WIDTH, 2))
    assert project_add_and_norm(X, X, layer, nn.LayerNorm(WIDTH)) == "by a kernel"
    _, change, *_ = kernels.call_args.args
    torch.testing.assert_close(change, layer(X) - layer.bias)
    assert kernels.call_args.kwargs["change_bias"] is layer.bias
    assert project_and_activate(X, layer, nn.GELU()) == "by a kernel"
    product, bias = kernels.call_args.args
    torch.testing.assert_close(product, layer(X) - layer.bias)
    assert bias is layer.bias


def feedforward(norm: Norm) -> FeedForward:
    return FeedForward(WIDTH, 12, activation="gelu", norm=norm)


def post_norm(norm: Norm) -> PostNormBlock:
    return PostNormBlock(WIDTH, mixer=SelfAttention(WIDTH, 2), feedforward=feedforward(norm), norm=norm)


def bottleneck(norm: Norm) -> BottleneckBlock:
    mixer = SelfAttention(WIDTH, 2)
    return BottleneckBlock(
        12, WIDTH, mixer=mixer, mixer_input="narrow", feedforward=feedforward(norm), norm=norm, dropout=0.1
    ).eval()


class Whole(nn.Module):
    """Embeddings, a block of each kind, and the heads of pre-training."""

    def __init__(self) -> None:
        super().__init__()
        norm = layer_norm(1e-12)
        self.embeddings = Embeddings(20, 4, WIDTH, positions=6, segments=2, norm=norm)
        self.first, self.widen, self.second = post_norm(norm), nn.Linear(WIDTH, 12), bottleneck(norm)
        self.mlm, self.rtd = MaskedLanguage(12, 20, 4), ReplacedToken(12)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        mask = Mask(torch.ones_like(ids, dtype=torch.bool))
        x = self.second(self.widen(self.first(self.embeddings(ids, segments, mask), mask)), mask)
        return torch.cat([self.mlm(x, self.embeddings.word.weight), self.rtd(x).unsqueeze(-1)], dim=-1)


def test_kernels_and_layers_give_the_same_results_and_gradients():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    model = fused(Whole())
    ids, segments = torch.randint(0, 20, (2, 5)), torch.randint(0, 2, (2, 5))
    direction, results = torch.randn(2, 5, 21), []
    for backend in ("torch", "triton"):
        with using(backend):
            out = model(ids, segments)
        model.zero_grad()
        (out * direction).sum().backward()
        results.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_compiled_models_call_the_kernels_without_a_graph_break():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    model, graphs = fused(Whole()), []

    def keep(module, example):
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module.forward)

    ids, segments = torch.randint(0, 20, (2, 5)), torch.randint(0, 2, (2, 5))
    expected = model(ids, segments)
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    with using("triton"):
        out = compiled(ids, segments)
        out.sum().backward()
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
    forward, backward = graphs
    assert forward.count("lightbert.residual_norm.default(") == 5
    assert forward.count("lightbert.bias_gelu.default(") == 3
    assert forward.count("lightbert.gelu_score.default(") == 1
    assert backward.count("lightbert.embedding_backward.default(") == 2


def test_the_kernels_sum_the_gradients_of_the_biases_of_a_feed_forward():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    part, graphs = fused(feedforward(layer_norm(1e-12))), []

    def keep(module, example):
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module.forward)

    compiled = torch.compile(part, backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    with using("triton"):
        compiled(X.clone().requires_grad_()).sum().backward()
    _, backward = graphs
    assert "aten.mm." in backward
    assert "aten.sum." not in backward


def mobile(**changes: object) -> FeedForward:
    settings = {"activation": "relu", "norm": NoNorm, **changes}
    part = FeedForward(16, 32, **settings)
    install(part)
    return part


def test_a_feed_forward_without_a_norm_is_one_kernel_with_the_same_results_and_gradients():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    part, x, results = randomised(mobile()), torch.randn(2, 3, 16), []
    for backend in ("torch", "triton"):
        leaf = x.clone().requires_grad_()
        part.zero_grad()
        with (
            using(backend),
            mock.patch("lightbert.ops.relu_feedforward.relu_feedforward", side_effect=relu_feedforward) as called,
        ):
            out = part(leaf)
        (out * x).sum().backward()
        results.append([out.detach(), leaf.grad, *(parameter.grad.clone() for parameter in part.parameters())])
        assert called.called == (backend == "triton")
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "part",
    [
        mobile(activation="relu6"),
        mobile(activation="gelu"),
        mobile(norm=layer_norm(1e-12)),
        mobile(groups=2),
        mobile(dropout=0.1),
    ],
    ids=["relu6", "gelu", "with a norm", "grouped", "with dropout"],
)
def test_other_feed_forwards_are_computed_by_their_layers(part):
    with (
        mock.patch("lightbert.ops.relu_feedforward.has_kernel", return_value=True),
        mock.patch("lightbert.ops.relu_feedforward.relu_feedforward") as kernel,
    ):
        part(torch.randn(2, 3, 16))
    kernel.assert_not_called()


@pytest.mark.parametrize("name", ["up", "down", "activation", "norm", "dropout"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_feed_forward_with_a_changed_layer_calls_its_layers(change, name):
    part = mobile()
    setattr(part, name, change(getattr(part, name)))
    with (
        mock.patch("lightbert.ops.relu_feedforward.has_kernel", return_value=True),
        mock.patch("lightbert.ops.relu_feedforward.relu_feedforward") as kernel,
    ):
        part(torch.randn(2, 3, 16))
    kernel.assert_not_called()


def test_dropout_is_no_obstacle_when_a_feed_forward_is_evaluated():
    with (
        mock.patch("lightbert.ops.relu_feedforward.has_kernel", return_value=True),
        mock.patch("lightbert.ops.relu_feedforward.relu_feedforward", return_value="by a kernel"),
    ):
        assert mobile(dropout=0.1).eval()(torch.randn(2, 3, 16)) == "by a kernel"


def test_large_activations_are_left_out_with_the_same_results_and_gradients():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    block, results = fused(feedforward(layer_norm(1e-12))), []
    for large in (2**27, 1):
        leaf = X.clone().requires_grad_()
        block.zero_grad()
        with (
            using("triton"),
            mock.patch("lightbert.nn.fused._LARGE", large),
            mock.patch("lightbert.ops.bias_gelu.gelu_linear", side_effect=gelu_linear) as called,
        ):
            out = block(leaf)
        (out * X).sum().backward()
        results.append([out.detach(), leaf.grad, *(parameter.grad.clone() for parameter in block.parameters())])
        assert called.called == (large == 1)
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_bias_of_the_change_is_added_without_the_kernel_too():
    layer, norm = randomised(nn.Linear(WIDTH, WIDTH)), randomised(NoNorm(WIDTH))
    found = add_and_norm(X, nn.functional.linear(X, layer.weight), norm, None, layer.bias)
    torch.testing.assert_close(found, add_and_norm(X, layer(X), norm))


def test_activations_are_kept_without_gradients_and_for_other_layers():
    up, down, gelu = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH), nn.GELU()
    with mock.patch("lightbert.nn.fused._LARGE", 1):
        assert project_large(X, up, gelu, down) is None, "no kernel"
        with mock.patch("lightbert.ops.bias_gelu.has_kernel", return_value=True):
            assert project_large(X, up, nn.ReLU(), down) is None
            assert project_large(X, up, gelu, hooked(nn.Linear(12, WIDTH))) is None
            assert project_large(X, hooked(nn.Linear(WIDTH, 12)), gelu, down) is None
            with torch.no_grad():
                assert project_large(X, up, gelu, down) is None


def test_compiled_models_draw_a_seed_for_the_dropout_of_each_kernel():
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    block, graphs = fused(bottleneck(layer_norm(1e-12))).train(), []

    def keep(module, example):
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module.forward)

    compiled = torch.compile(
        lambda x: block(block(x, NO_MASK), NO_MASK), backend=aot_autograd(fw_compiler=keep), fullgraph=True
    )
    x, results = torch.randn(2, 3, 12), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        leaf = x.clone().requires_grad_()
        with using("triton"):
            out = compiled(leaf)
            out.sum().backward()
        results.append([out.detach(), leaf.grad])
    assert all(torch.equal(one, other) for one, other in zip(*results[:2], strict=True))
    assert not torch.equal(results[0][0], results[2][0])
    forward, backward = graphs
    assert forward.count("aten.randint.") == 2
    assert "aten.randint." not in backward


@pytest.mark.parametrize("part", [DynamicConvolution, SeparableConvolution])
def test_mixed_attention_projects_all_streams_by_one_matmul_on_a_gpu(part):
    settings = (3,) if part is SeparableConvolution else (2, 3)
    mixer = fused(SelfAttention(WIDTH, 2, head_width=2, convolution=part(WIDTH, 4, *settings)))
    expected = mixer(X, NO_MASK)
    with (
        mock.patch("lightbert.nn.fused.on_gpu", return_value=True),
        mock.patch("lightbert.nn.fused.project", side_effect=project_fused) as project,
    ):
        torch.testing.assert_close(mixer(X, NO_MASK), expected)
    (call,) = project.call_args_list
    assert len(call.args) == (4 if part is SeparableConvolution else 5), "the stream and its layers"


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_one_op_computes_both_kinds_of_heads(dtype):
    mixer = fused(SelfAttention(WIDTH, 2, head_width=2, convolution=SpanConvolution(WIDTH, 4, 2, 3)))
    mask = Mask(torch.tensor([[1, 1, 1], [1, 1, 0]]).to(dtype))
    x = torch.randn(2, 3, WIDTH, requires_grad=True)
    expected = mixer(x, mask)
    wanted = torch.autograd.grad(expected.sum(), [x, *mixer.parameters()])
    with (
        mock.patch("lightbert.nn.fused.on_gpu", return_value=True),
        mock.patch("lightbert.nn.fused.mixed_heads", side_effect=mixed_heads) as op,
    ):
        found = mixer(x, mask)
    op.assert_called_once()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), [x, *mixer.parameters()]), wanted)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["query", "convolution.kernel", "convolution.value"])
def test_heads_with_layers_that_are_not_plain_are_computed_layer_by_layer(change, name):
    mixer = fused(SelfAttention(WIDTH, 2, head_width=2, convolution=SpanConvolution(WIDTH, 4, 2, 3)))
    change(mixer.get_submodule(name))
    expected = mixer(X, NO_MASK)
    with (
        mock.patch("lightbert.nn.fused.on_gpu", return_value=True),
        mock.patch("lightbert.nn.fused.mixed_heads") as op,
    ):
        torch.testing.assert_close(mixer(X, NO_MASK), expected)
    op.assert_not_called()


@pytest.mark.parametrize("convolved", ["", "q", "qkv"])
def test_composite_attention_projects_all_streams_by_one_matmul_on_a_gpu_unless_some_are_convolved(convolved):
    mixer = fused(composite(WIDTH, 2, convolved=convolved))
    expected = mixer(X, NO_MASK)
    with mock.patch("lightbert.nn.fused.project", side_effect=project_fused) as project:
        torch.testing.assert_close(mixer(X, NO_MASK), expected)
    assert [len(call.args) for call in project.call_args_list] == ([] if convolved else [4])


COMPOSITE = {
    "fixed and query-dynamic": {},
    "query-dynamic": {"fixed": False},
    "all": {"key_dynamic": True},
    "fixed": {"query_dynamic": False},
    "key-dynamic": {"query_dynamic": False, "fixed": False, "key_dynamic": True},
    "fixed and key-dynamic": {"query_dynamic": False, "key_dynamic": True},
}


@pytest.mark.parametrize(
    "mixer",
    [SelfAttention(WIDTH, 2), *(composite(WIDTH, 2, **kinds) for kinds in COMPOSITE.values())],
    ids=["self-attention", *COMPOSITE],
)
def test_attention_on_the_result_of_one_matmul_has_the_same_results_and_gradients(mixer):
    pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
    mixer = randomised(mixer)
    expected = result_and_gradients(mixer)
    install(mixer)
    patched = "lightbert.ops.joined_attention.joined_attention"
    with using("triton"), mock.patch(patched, side_effect=joined_attention) as joined:
        found = result_and_gradients(mixer)
    joined.assert_called_once()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [SelfAttention, composite])
def test_attention_with_a_changed_layer_calls_its_layers(kind, change):
    mixer = fused(kind(WIDTH, 2))
    mixer.key = change(mixer.key)
    module = "lightbert.ops.joined_attention"
    with mock.patch.multiple(module, has_kernel=lambda *_: True, joined_attention=mock.DEFAULT) as patched:
        mixer(X, NO_MASK)
    patched["joined_attention"].assert_not_called()


@pytest.mark.parametrize("settings", [{"convolved": "q"}, {"depthwise": True}])
def test_composite_attention_with_other_convolutions_calls_its_layers(settings):
    mixer = fused(composite(WIDTH, 2, **settings))
    with mock.patch.multiple(
        "lightbert.ops.joined_attention", has_kernel=lambda *_: True, joined_attention=mock.DEFAULT
    ) as patched:
        mixer(X, NO_MASK)
    patched["joined_attention"].assert_not_called()


@pytest.mark.parametrize("kind", [SelfAttention, composite])
def test_attention_keeps_what_a_record_asks_for(kind):
    mixer, record = fused(kind(WIDTH, 2)), Record(attention=[])
    with mock.patch("lightbert.ops.joined_attention.has_kernel", return_value=True):
        mixer(X, NO_MASK, record=record)
    assert [maps.shape for maps in record.attention] == [(2, 2, 3, 3)]


def shared_bottleneck(kind: type = SelfAttention, norm: Norm = NoNorm, dropout: float = 0.0) -> BottleneckBlock:
    feedforward = FeedForward(4, 6, activation="relu", norm=norm)
    mixer = kind(4, 2, value_width=WIDTH)
    parts = {"mixer": mixer, "mixer_input": "shared", "feedforward": feedforward, "norm": norm, "dropout": dropout}
    return fused(BottleneckBlock(WIDTH, 4, **parts))


def result_and_gradients(block: nn.Module) -> list[Tensor]:
    """The result, and the gradients of the input and of all parameters."""
    block.zero_grad()
    x = X.clone().requires_grad_()
    out = block(x, NO_MASK)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out, x.grad, *(parameter.grad.clone() for parameter in block.parameters())]


@pytest.mark.parametrize("batch", [0, 3])
def test_channels_of_a_wider_tensor_are_projected_as_a_tensor_of_their_own(batch):
    layers = [randomised(nn.Linear(WIDTH, 4)), randomised(nn.Linear(WIDTH, 2))]
    part = torch.randn(batch, 5, 2 * WIDTH)[..., WIDTH:]
    for found, layer in zip(project_fused(part, *layers), layers, strict=True):
        torch.testing.assert_close(found, layer(part))


@pytest.mark.parametrize("kind", [SelfAttention, composite])
def test_all_layers_that_read_the_wide_stream_of_a_bottleneck_are_one_matmul_on_a_gpu(kind):
    block = shared_bottleneck(kind, layer_norm(1e-12))
    expected = block(X, NO_MASK)
    with mock.patch("lightbert.nn.fused.project", side_effect=project_fused) as project:
        torch.testing.assert_close(block(X, NO_MASK), expected)
    call = project.call_args_list[0]
    assert call.args[1:] == (block.enter, block.shared, block.mixer.value)


@needs_kernels
@pytest.mark.parametrize("kind", [SelfAttention, composite])
def test_that_matmul_has_the_scales_of_a_bottleneck_without_norms_in_its_weights(kind):
    block = shared_bottleneck(kind)
    expected = block(X, NO_MASK)
    with using("triton"), mock.patch("lightbert.nn.fused.project_weights", side_effect=project_weights) as project:
        torch.testing.assert_close(block(X, NO_MASK), expected)
    (call,) = project.call_args_list
    (entered, _), (shared, _), *others = call.args[1:]
    torch.testing.assert_close(entered, block.enter.weight * block.enter_norm.weight[:, None])
    torch.testing.assert_close(shared, block.shared.weight * block.shared_norm.weight[:, None])
    assert others == [(block.mixer.value.weight, block.mixer.value.bias)]


@needs_kernels
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_scales_in_the_weights_of_a_bottleneck_change_neither_result_nor_gradients(dropout):
    block = shared_bottleneck(dropout=dropout)
    torch.manual_seed(0)
    expected = result_and_gradients(block)
    with using("triton"), mock.patch("lightbert.nn.fused.add_and_norm") as layer_by_layer:
        torch.manual_seed(0)
        found = result_and_gradients(block)
    assert not layer_by_layer.called
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@needs_kernels
@pytest.mark.parametrize(
    "name", ["enter", "enter_norm", "shared", "mixer.value", "output", "norm", "leave", "leave_norm", "dropout"]
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_bottleneck_with_a_changed_layer_calls_it(change, name):
    block = shared_bottleneck()
    change(block.get_submodule(name))
    expected = block(X, NO_MASK)
    with using("triton"):
        torch.testing.assert_close(block(X, NO_MASK), expected)


@pytest.mark.parametrize("kind", [DynamicConvolution, SpanConvolution])
def test_padded_outputs_of_the_kernel_layer_change_neither_result_nor_gradients(kind):
    layer = fused(kind(WIDTH, WIDTH, 2, 3)).double()
    x, found = torch.randn(2, 5, WIDTH, dtype=torch.float64), []
    for gpu in (False, True):
        layer.zero_grad()
        with mock.patch("lightbert.nn.fused.on_gpu", return_value=gpu):
            out = layer(x, x, x, NO_MASK)
        (out * x).sum().backward()
        found.append([out, *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("change", CHANGES)
def test_a_kernel_layer_that_is_not_plain_is_called(change):
    layer = fused(DynamicConvolution(WIDTH, WIDTH, 2, 3))
    change(layer.kernel)
    expected = layer(X, X, X, NO_MASK)
    with mock.patch("lightbert.nn.fused.on_gpu", return_value=True):
        torch.testing.assert_close(layer(X, X, X, NO_MASK), expected)


def test_a_model_on_a_cpu_computes_the_same_bits_with_and_without_installed_kernels():
    model = randomised(Whole())
    ids, segments = torch.randint(0, 20, (2, 5)), torch.randint(0, 2, (2, 5))
    expected, names = model(ids, segments), [name for name, _ in model.named_parameters()]
    install(model)
    assert torch.equal(model(ids, segments), expected)
    assert [name for name, _ in model.named_parameters()] == names
    classes = [type(part) for part in model.modules()]
    install(model)
    assert [type(part) for part in model.modules()] == classes
    assert torch.equal(copy.deepcopy(model)(ids, segments), expected)


def test_every_part_that_is_replaced_stays_an_instance_of_its_class():
    for kind, fused_kind in _FUSED.items():
        assert issubclass(fused_kind, kind)


def test_kernels_are_installed_when_a_model_is_moved_to_a_gpu_and_when_a_head_is_added(monkeypatch):
    model = build("convbert-tiny")
    assert type(model.to("cpu").blocks[0]) is PostNormBlock
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True)
    assert isinstance(model.to("cpu").blocks[0].mixer, _FUSED[SelfAttention])
    assert isinstance(add_head(model, "mlm"), _FUSED[MaskedLanguage])


def test_hooks_that_are_registered_after_the_installation_are_called():
    model = fused(Whole())
    ids, segments, calls = torch.randint(0, 20, (2, 5)), torch.randint(0, 2, (2, 5)), []
    for name, part in model.named_modules():
        part.register_forward_hook(lambda module, inputs, output, name=name: calls.append(name))
    with using("triton"):
        model(ids, segments)
    unused = {"first.mixer.dropout", "second.mixer.dropout"}
    assert {name for name, _ in model.named_modules()} - {*calls} <= unused
