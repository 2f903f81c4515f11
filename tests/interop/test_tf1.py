import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from releases import Variables

from lightbert.errors import InputError
from lightbert.interop import families
from lightbert.interop.tf1 import model_variables, read_checkpoint, read_tf1
from lightbert.interop.tf1_models import identify_electra, identify_mobilebert, released_keymap
from lightbert.models import PRESETS, build
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert

SMALL = {"vocab": 30, "positions": 12, "depth": 2}
ELECTRA = Bert(**SMALL, narrow=8, width=64, n_heads=1, inner=32)
CONVBERT = ConvBert(**SMALL, narrow=8, width=16, n_heads=4, inner=32, kernel=5, padding="released")
MOBILE = MobileBert(**SMALL, narrow=4, width=12, block_width=8, n_heads=2, inner=10, feedforwards=3, padding="released")
JSON_CONFIG = {"num_attention_heads": 2, "hidden_act": "relu"}
# A config, its pre-training heads, and the JSON settings that shapes don't determine.
CASES = {
    "electra": (ELECTRA, ("rtd",), {}),
    "electra-of-another-width": (replace(ELECTRA, width=24, n_heads=3), ("rtd",), {"num_attention_heads": 3}),
    "electra-one-width": (replace(ELECTRA, narrow=64), ("rtd",), {}),
    "electra-masked-language": (ELECTRA, ("mlm",), {}),
    "convbert": (CONVBERT, ("rtd",), {}),
    "convbert-grouped": (replace(CONVBERT, groups=2), ("rtd",), {}),
    "convbert-ratio-4": (replace(CONVBERT, head_ratio=4), ("rtd",), {}),
    "convbert-relu": (replace(CONVBERT, activation="relu"), ("rtd",), {"hidden_act": "relu", "conv_type": "sdconv"}),
    "convbert-one-head": (replace(CONVBERT, n_heads=1), ("rtd",), {}),
    "convbert-bottleneck": (
        replace(CONVBERT, convolution="none", kernel=9),
        ("rtd",),
        {"num_attention_heads": 4, "conv_type": "noconv"},
    ),
    "convbert-body": (CONVBERT, (), {}),
    "mobilebert": (MOBILE, ("mlm", "nsp"), JSON_CONFIG),
    "mobilebert-narrow": (replace(MOBILE, mixer_input="narrow"), ("mlm", "nsp"), JSON_CONFIG),
    "mobilebert-wide": (replace(MOBILE, mixer_input="wide"), ("mlm", "nsp"), JSON_CONFIG),
    "mobilebert-one-feed-forward": (replace(MOBILE, feedforwards=1), ("mlm",), JSON_CONFIG),
    "mobilebert-layer-norm": (
        replace(MOBILE, norm="layer", activation="gelu_tanh"),
        ("mlm", "nsp"),
        {**JSON_CONFIG, "hidden_act": "gelu", "normalization_type": "layer_norm"},
    ),
    "mobilebert-manual-layer-norm": (
        replace(MOBILE, norm="layer", eps=1e-6),
        ("mlm", "nsp"),
        {**JSON_CONFIG, "normalization_type": "manual_layer_norm"},
    ),
    "mobilebert-pooler": (MOBILE, ("mlm", "pooler"), JSON_CONFIG),
}
# The presets that need no config: the convolution, the width or all shapes determine their heads.
PUBLISHED = [
    "bert-small",
    "bert-base",
    "convbert-small",
    "convbert-medium-small",
    "convbert-base",
    "convbert-small-bnk",
    "convbert-base-bnk",
    "mobilebert",
    "mobilebert-paper",
    "mobilebert-no-opt",
    "mobilebert-tiny",
    "ib-bert-large",
]


def random_model(config, kinds):
    heads = {kind: {} for kind in kinds}
    if "mlm" in heads and isinstance(config, MobileBert):
        heads["mlm"] = {"eps": 1e-12}
    model = build(config, heads=heads)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model


def table(config, scope="electra"):
    if isinstance(config, MobileBert):
        return released_keymap(
            families.MOBILEBERT, "bert", norm="FakeLayerNorm" if config.norm == "none" else "LayerNorm"
        )
    return released_keymap(families.CONVBERT, scope, embeddings="electra", grouped=getattr(config, "groups", 1) > 1)


def renamed(model, scope="electra"):
    last = getattr(model.config, "feedforwards", 1) - 1
    return table(model.config, scope).to_theirs(model.state_dict(), last=last)


def variables_of(*models_and_scopes):
    variables = Variables()
    for model, scope in models_and_scopes:
        variables.update({name: tensor.numpy() for name, tensor in renamed(model, scope).items()})
    variables.add_slots()
    return variables


def variables_of_case(case):
    config, kinds, given = CASES[case]
    model = random_model(config, kinds)
    return model, variables_of((model, "electra")), given


def assert_same_model(read, written):
    assert read.config == written.config
    assert read.head_settings == written.head_settings
    expected = written.state_dict()
    assert read.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in read.state_dict().items())


def test_the_inverse_keymap_round_trips_bit_for_bit(subtests):
    for case in CASES:
        with subtests.test(case=case):
            model, variables, given = variables_of_case(case)
            part = "generator" if case == "electra-masked-language" else "discriminator"
            assert_same_model(read_checkpoint(variables, part=part, config=given), model)


def test_one_checkpoint_contains_a_discriminator_and_a_generator_that_share_embeddings(subtests):
    for config in (ELECTRA, replace(ELECTRA, narrow=64), CONVBERT, replace(CONVBERT, groups=2)):
        with subtests.test(config=config):
            discriminator = random_model(config, ("rtd",))
            small = replace(config, width=64, n_heads=1, inner=256)
            generator = random_model(small, ("mlm",))
            for name in ("word", "position", "segment", "norm"):
                setattr(generator.embeddings, name, getattr(discriminator.embeddings, name))
            variables = variables_of((discriminator, "electra"), (generator, "generator"))
            assert_same_model(read_checkpoint(variables), discriminator)
            assert_same_model(read_checkpoint(variables, part="generator"), generator)


def test_a_generator_may_have_separate_embeddings():
    discriminator, generator = random_model(ELECTRA, ("rtd",)), random_model(ELECTRA, ("mlm",))
    variables = variables_of((discriminator, "electra"))
    own = released_keymap(families.CONVBERT, "generator").to_theirs(generator.state_dict(), last=0)
    variables.update({name: tensor.numpy() for name, tensor in own.items()})
    assert_same_model(read_checkpoint(variables, part="generator"), generator)
    assert_same_model(read_checkpoint(variables), discriminator)


@pytest.mark.parametrize("case", ["electra", "convbert", "convbert-grouped", "mobilebert"])
class TestAnInvalidCheckpoint:
    def test_is_an_error_for_every_missing_variable(self, case):
        _, variables, given = variables_of_case(case)
        # The second block has the same variables as the first.
        for name in [name for name in model_variables(variables) if "/layer_1/" not in name]:
            rest = Variables()
            rest.update({other: array for other, array in variables.items() if other != name})
            with pytest.raises(InputError):
                read_checkpoint(rest, config=given)

    def test_is_an_error_that_names_an_unexpected_variable(self, case):
        _, variables, given = variables_of_case(case)
        variables["task_specific/sts/dense/kernel"] = np.zeros((3, 3), dtype=np.float32)
        with pytest.raises(InputError, match="'task_specific/sts/dense/kernel' unexpected"):
            read_checkpoint(variables, config=given)

    def test_is_an_error_that_names_a_variable_of_another_shape(self, case):
        _, variables, given = variables_of_case(case)
        name = next(name for name in variables if "layer_1/attention/self/key/kernel" in name)
        variables[name] = np.zeros((3, 3), dtype=np.float32)
        with pytest.raises(InputError, match=f"'{name}' must have the shape"):
            read_checkpoint(variables, config=given)


def test_a_published_model_is_recognised_by_its_shapes_alone(subtests):
    for name in PUBLISHED:
        with subtests.test(name=name):
            preset = PRESETS[name] if isinstance(PRESETS[name], Bert) else replace(PRESETS[name], padding="released")
            tensors = renamed(build(preset, device="meta"))
            identify = identify_mobilebert if isinstance(preset, MobileBert) else identify_electra
            assert identify(tensors, {}).config == preset


def test_a_config_completes_the_shapes_and_must_not_contradict_them():
    for case, given, sentence in (
        ("electra-of-another-width", {}, "can't be determined from the width 24; give 'num_attention_heads'"),
        ("electra-of-another-width", {"num_attention_heads": 5}, "5 heads and width 24 don't match queries"),
        ("electra-of-another-width", {"num_attention_heads": "3"}, "n_heads must be an integer, got '3'"),
        ("electra", {"hidden_size": 256}, "'hidden_size' is 256 in the config, but the checkpoint has width = 64"),
        ("electra", {"hiden_size": 64}, "did you mean 'hidden_size'"),
        ("convbert", {"num_attention_heads": 8}, "'num_attention_heads' is 8 in the config, but .* has n_heads = 4"),
        ("convbert", {"conv_type": "noconv"}, "'conv_type' is 'noconv' in the config, but .* has convolution = 'span'"),
        ("convbert", {"head_ratio": 4}, "4 heads and width 16 don't match queries of width 8"),
        ("mobilebert", {}, "don't determine 'num_attention_heads', 'hidden_act': give the JSON config"),
        ("mobilebert", {**JSON_CONFIG, "hidden_act": "swish"}, "unknown hidden_act 'swish'"),
        ("mobilebert", {**JSON_CONFIG, "trigram_input": False}, "unknown trigram_input 'False'"),
        ("mobilebert", {**JSON_CONFIG, "normalization_type": "layer_norm"}, "has norm = 'none'"),
    ):
        _, variables, _ = variables_of_case(case)
        with pytest.raises(InputError, match=sentence):
            read_checkpoint(variables, config=given)


def test_a_missing_part_is_an_error():
    for case, part, sentence in (
        ("convbert", "generator", "has no generator"),
        ("mobilebert", "generator", "MobileBERT has no generator"),
        ("electra-masked-language", "discriminator", "has no discriminator"),
        ("electra", "generater", "did you mean 'generator'"),
    ):
        _, variables, given = variables_of_case(case)
        with pytest.raises(InputError, match=sentence):
            read_checkpoint(variables, part=part, config=given)


def test_a_checkpoint_of_another_kind_is_an_error():
    variables = Variables()
    variables.tables("bert/embeddings", 4, 4)
    with pytest.raises(InputError, match="must be of ELECTRA, ConvBERT or MobileBERT"):
        read_checkpoint(variables)


def test_an_imported_model_keeps_its_origin():
    origins = {case: read_checkpoint(*variables_of_case(case)[1:2]).origin for case in ("electra", "convbert")}
    assert origins == {"electra": "electra", "convbert": "convbert"}


def test_the_error_without_tensorflow_suggests_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (tmp_path / "model.ckpt.index").touch()
    with pytest.raises(InputError, match=r"requires tensorflow; install it with: pip install 'lightbert\[tf1\]'"):
        read_tf1(tmp_path / "model.ckpt")


def test_a_prefix_without_files_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"model.ckpt.index' not found; give the common prefix"):
        read_tf1(tmp_path / "model.ckpt")
