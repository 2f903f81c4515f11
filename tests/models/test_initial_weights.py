"""Initial weights: the distributions of the released code, determined by the seed and the names alone."""

import hashlib
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightbert.models import PRESETS, Config, add_head, build
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert
from lightbert.nn import init
from lightbert.nn.encoder import Encoder
from lightbert.nn.init import seed_from_torch

# The standard deviation of a standard normal distribution truncated at two standard deviations.
CUT = 0.8796
SIZES = {"vocab": 400, "positions": 64, "narrow": 48, "width": 96, "depth": 2, "n_heads": 4, "inner": 192}
CONFIGS: dict[str, Config] = {
    "convbert": ConvBert(**SIZES),
    "grouped": ConvBert(**SIZES, groups=2),
    "conventional": ConvBert(**SIZES, convolution="conventional"),
    "composite": Composite(**SIZES, key_dynamic=True, depthwise=True, convolved="qkv"),
    "local": Composite(**SIZES, local="query", relative="none"),
    "mobilebert": replace(MobileBert(**SIZES), block_width=48),
}


HEADS: dict[str, dict[str, Any]] = {"mlm": {}, "rtd": {}, "classify": {"labels": 3}}


@pytest.fixture(scope="module")
def models() -> dict[str, Encoder]:
    return {name: build(config, heads=HEADS, seed=0) for name, config in CONFIGS.items()}


def assert_cut_normal(weight: Tensor, std: float) -> None:
    assert weight.abs().amax() <= 2 * std
    assert weight.std().item() == pytest.approx(CUT * std, rel=5 / math.sqrt(weight.numel()))
    assert weight.mean().abs() < 5 * std / math.sqrt(weight.numel())


def assert_uniform(weight: Tensor, bound: float) -> None:
    assert weight.abs().amax() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=5 / math.sqrt(weight.numel()))


def test_matrices_and_tables_are_normal_with_002_truncated_at_two_deviations(models, subtests):
    for name, model in models.items():
        with subtests.test(name=name):
            trigram = isinstance(model.config, MobileBert)
            glorot = {"heads.rtd.output"} if trigram else {"heads.rtd.output", "embeddings.project"}
            for name, module in model.named_modules():
                if isinstance(module, nn.Linear | nn.Embedding) and name not in glorot and module.weight.shape[0] > 3:
                    assert_cut_normal(module.weight, 0.02)


def test_grouped_matrices_have_the_same_distribution():
    for part in ("up", "down"):
        assert_cut_normal(build(CONFIGS["grouped"], seed=0).blocks[0].feedforward.get_submodule(part).weight, 0.02)


def test_biases_start_at_zero_and_norms_as_the_identity(models, subtests):
    for name, model in models.items():
        with subtests.test(name=name):
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
                elif name.endswith("bias") and "depthwise" not in name and "convolution.bias" not in name:
                    assert not parameter.any(), name


def test_the_separable_convolution_starts_with_one_over_k():
    for kind in ("convbert", "conventional"):
        for block in build(CONFIGS[kind], seed=0).blocks:
            assert_cut_normal(block.mixer.convolution.depthwise.weight, 1 / 9)
            assert_cut_normal(block.mixer.convolution.pointwise.weight, 0.02)


def test_the_presets_of_the_composite_paper_start_from_a_normal_distribution_that_is_not_truncated():
    model = build(replace(PRESETS["composite-small"], vocab=400, depth=2), seed=0)
    mixer = model.blocks[0].mixer
    for weight in (model.table, model.embeddings.project.weight, mixer.query.weight, model.blocks[1].output.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=5 / math.sqrt(weight.numel()))
        assert (weight.abs() > 0.04).float().mean().item() == pytest.approx(0.0455, abs=0.01)
    assert not mixer.query.bias.any()
    assert not mixer.fixed.any()
    assert_uniform(mixer.query_dynamic, 17**-0.5)


def test_composite_weights_start_at_zero_and_uniform():
    for block in build(CONFIGS["composite"], seed=0).blocks:
        mixer = block.mixer
        assert not mixer.fixed.any()
        assert_uniform(mixer.query_dynamic, 17**-0.5)
        assert_uniform(mixer.key_dynamic, 17**-0.5)
        for depthwise in (mixer.depthwise, mixer.query.convolution, mixer.key.convolution, mixer.value.convolution):
            assert_uniform(depthwise.weight, 17**-0.5)
            assert_uniform(depthwise.bias, 17**-0.5)


def test_local_attention_initializes_its_convolution_as_torch_does():
    for block in build(CONFIGS["local"], seed=0).blocks:
        assert_uniform(block.mixer.depthwise.weight, 9**-0.5)
        assert_uniform(block.mixer.depthwise.bias, 9**-0.5)


def test_the_embedding_projection_and_the_last_layer_of_rtd_are_glorot_uniform():
    model = build(CONFIGS["convbert"], heads={"rtd": {}}, seed=0)
    assert_uniform(model.embeddings.project.weight, math.sqrt(6 / (48 + 96)))
    assert_uniform(model.heads["rtd"].output.weight, math.sqrt(6 / (96 + 1)))


# The weights of CONFIGS with HEADS and the seed 0, on every machine.
DIGESTS = {
    "convbert": "269fb64535611a0e",
    "grouped": "abe24b9d778c0225",
    "conventional": "a172ce406db49128",
    "composite": "7f9cd25bcb83685e",
    "local": "08768a91b4b17ab9",
    "mobilebert": "65e9d329c1b444f1",
}


def test_a_seed_gives_the_same_weights_to_the_last_bit_on_every_machine(subtests):
    for kind in CONFIGS:
        with subtests.test(kind=kind):
            digest = hashlib.sha256()
            for name, parameter in build(CONFIGS[kind], heads=HEADS, seed=0).named_parameters():
                digest.update(name.encode())
                digest.update(parameter.detach().numpy().astype("<f4").tobytes())
            assert digest.hexdigest()[:16] == DIGESTS[kind]


def test_a_weight_depends_on_seed_name_and_position_only():
    plain, deeper = build(CONFIGS["convbert"], seed=5), build(replace(CONFIGS["convbert"], depth=3, vocab=500), seed=5)
    for name, parameter in plain.named_parameters():
        assert torch.equal(deeper.get_parameter(name).flatten()[: parameter.numel()], parameter.flatten()), name
    other = build(CONFIGS["convbert"], seed=6)
    assert not torch.equal(other.table, plain.table)
    assert torch.equal(build(CONFIGS["convbert"], heads=HEADS, seed=5).table, plain.table)


def test_no_two_parameters_share_numbers(models, subtests):
    for name, model in models.items():
        with subtests.test(name=name):
            drawn = [parameter.flatten()[:3] for parameter in model.parameters() if parameter.unique().numel() > 1]
            # Parameters with the same random numbers would differ by a factor at most.
            assert len({tuple((first / first[0]).tolist()) for first in drawn}) == len(drawn) > 20


def test_a_head_added_later_equals_one_built_with_the_model():
    together, later = build(CONFIGS["convbert"], heads=HEADS, seed=5), build(CONFIGS["convbert"], seed=5)
    for kind in reversed(HEADS):
        add_head(later, kind, HEADS[kind], seed=5)
    assert all(torch.equal(later.get_parameter(name), each) for name, each in together.named_parameters())


def test_without_a_seed_torch_manual_seed_determines_the_weights():
    def drawn() -> list[Tensor]:
        torch.manual_seed(3)
        first, second = build(CONFIGS["convbert"]), build(CONFIGS["convbert"])
        head = add_head(first, "rtd").get_submodule("dense")
        return [first.table, second.table, head.weight, add_head(second, "rtd").get_submodule("dense").weight]

    before, after = drawn(), drawn()
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert not torch.equal(before[0], before[1])
    assert not torch.equal(before[2], before[3])


def test_the_seed_that_torch_gives_is_the_same_on_every_machine():
    torch.manual_seed(0)
    assert [seed_from_torch(), seed_from_torch()] == [900450186894289455, 3969543146641149120]


def test_modules_declare_initial_weights_of_existing_parameters(models, subtests):
    for name, model in models.items():
        with subtests.test(name=name):
            for path, module in model.named_modules():
                declared = module.initial_weights() if hasattr(module, "initial_weights") else {}
                for name in declared:
                    owner, _, own = name.rpartition(".")
                    assert hasattr(module.get_submodule(owner), own), f"{path}: {name}"


def test_initial_weights_do_not_depend_on_the_chunk_size(monkeypatch):
    whole = build(CONFIGS["convbert"], seed=1)
    monkeypatch.setattr(init, "_CHUNK", 1000)
    parts = build(CONFIGS["convbert"], seed=1)
    assert all(torch.equal(parts.get_parameter(name), each) for name, each in whole.named_parameters())


def test_on_the_meta_device_no_weights_are_drawn():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    build(CONFIGS["convbert"], heads=HEADS, device="meta")
    assert torch.equal(torch.rand(1), expected)
