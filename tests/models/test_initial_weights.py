"""How fresh weights are drawn: the statistics that the released code gives them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lightbert.models import Config, build
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert
from lightbert.nn.encoder import Encoder

# The standard deviation that is left of a normal one when it is cut at two standard deviations.
CUT = 0.8796
SIZES = {"vocab": 400, "positions": 64, "narrow": 48, "width": 96, "depth": 2, "n_heads": 4, "inner": 192}
CONFIGS: dict[str, Config] = {
    "convbert": ConvBert(**SIZES),
    "grouped": ConvBert(**SIZES, groups=2),
    "conventional": ConvBert(**SIZES, convolution="conventional"),
    "composite": Composite(**SIZES, key_dynamic=True, depthwise=True, convolved="qkv"),
    "local": Composite(**SIZES, local="query"),
    "mobilebert": replace(MobileBert(**SIZES), block_width=48),
}


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=CONFIGS.keys())
def model(request: pytest.FixtureRequest) -> Encoder:
    torch.manual_seed(0)
    return build(request.param, heads={"mlm": {}, "rtd": {}, "classify": {"labels": 3}})


def assert_cut_normal(weight: Tensor, std: float) -> None:
    assert weight.abs().amax() <= 2 * std
    assert weight.std().item() == pytest.approx(CUT * std, rel=5 / math.sqrt(weight.numel()))
    assert weight.mean().abs() < 5 * std / math.sqrt(weight.numel())


def assert_uniform(weight: Tensor, bound: float) -> None:
    assert weight.abs().amax() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=5 / math.sqrt(weight.numel()))


def test_matrices_and_tables_are_normal_with_002_and_cut_at_two_deviations(model):
    trigram = isinstance(model.config, MobileBert)
    glorot = {"heads.rtd.output"} if trigram else {"heads.rtd.output", "embeddings.project"}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding) and name not in glorot and module.weight.shape[0] > 3:
            assert_cut_normal(module.weight, 0.02)


def test_grouped_matrices_are_drawn_alike():
    for part in ("up", "down"):
        assert_cut_normal(build(CONFIGS["grouped"]).blocks[0].feedforward.get_submodule(part).weight, 0.02)


def test_biases_start_at_zero_and_norms_as_the_identity(model):
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias") and "depthwise" not in name and "convolution.bias" not in name:
            assert not parameter.any(), name


@pytest.mark.parametrize("kind", ["convbert", "conventional"])
def test_the_separable_convolution_starts_with_one_over_k(kind):
    for block in build(CONFIGS[kind]).blocks:
        assert_cut_normal(block.mixer.convolution.depthwise.weight, 1 / 9)
        assert_cut_normal(block.mixer.convolution.pointwise.weight, 0.02)


def test_composite_weights_start_at_zero_and_uniform():
    for block in build(CONFIGS["composite"]).blocks:
        mixer = block.mixer
        assert not mixer.fixed.any()
        assert_uniform(mixer.query_dynamic, 17**-0.5)
        assert_uniform(mixer.key_dynamic, 17**-0.5)
        for depthwise in (mixer.depthwise, mixer.query.convolution, mixer.key.convolution, mixer.value.convolution):
            assert_uniform(depthwise.weight, 17**-0.5)
            assert_uniform(depthwise.bias, 17**-0.5)


def test_the_comparison_model_draws_its_convolution_as_torch_does():
    for block in build(CONFIGS["local"]).blocks:
        assert_uniform(block.mixer.depthwise.weight, 9**-0.5)
        assert_uniform(block.mixer.depthwise.bias, 9**-0.5)


def test_the_embedding_projection_and_the_last_layer_of_rtd_are_glorot_uniform():
    model = build(CONFIGS["convbert"], heads={"rtd": {}})
    assert_uniform(model.embeddings.project.weight, math.sqrt(6 / (48 + 96)))
    assert_uniform(model.heads["rtd"].output.weight, math.sqrt(6 / (96 + 1)))
