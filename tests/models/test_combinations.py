"""Parts of different papers in one model: any preset takes the keys of all, and equals a textbook composition."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import textbook
import torch
from safetensors.torch import load_file, save_file
from small import KERNEL, VARIANTS, assert_same_states, ids, model_of
from torch import Tensor

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.models import PRESETS, Config, build, folder
from lightbert.models.hybrid import Hybrid
from lightbert.models.presets import generator
from lightbert.nn.convolution import SpanConvolution

RELATIVE = {
    "no term": {},
    "fixed": {"relative": "fixed"},
    "dynamic": {"relative": "dynamic", "outside": "zero"},
    "composite": {"relative": "composite"},
    "key": {"relative": "key", "outside": "zero"},
    "depthwise": {"relative": "composite", "depthwise": True},
    "convolved": {"convolved": "qkv"},
    "every": {"relative": "key", "depthwise": True, "convolved": "qk"},
}
CONVOLUTIONS = {
    "none": {"convolution": "none"},
    "span": {"convolution": "span"},
    "dynamic": {"convolution": "dynamic"},
    "gated": {"convolution": "gated", "kernels_per_head": True},
    "conventional": {"convolution": "conventional"},
    "even span": {"convolution": "span", "kernel": 4},
    "even conventional": {"convolution": "conventional", "kernel": 2},
    "span by Eq. 4 to 6": {"convolution": "span", "kernels_per_head": True, "shared_values": True},
    "dynamic, shared values": {"convolution": "dynamic", "shared_values": True},
}
SHELLS = {
    "post-norm": {"block_width": 0},
    "no norm, stacked, grouped": {"trigrams": True, "norm": "none", "feedforwards": 2, "groups": 2},
    "bottleneck, shared": {"block_width": 8, "trigrams": True, "norm": "none", "feedforwards": 2},
    "bottleneck, narrow": {"block_width": 8, "mixer_input": "narrow", "trigrams": True, "groups": 2},
    "inverted, wide": {"block_width": 24, "mixer_input": "wide"},
    "inverted, shared": {"block_width": 24, "trigrams": True, "norm": "none"},
}
SIZES = {"vocab": 50, "positions": 24, "narrow": 8, "width": 16, "depth": 2, "n_heads": 4, "inner": 24, "radius": 3}


def combinations() -> dict[str, Config]:
    """Every pair of terms and a convolution, of terms and a shell, and of a convolution and a shell."""
    shells, found = list(SHELLS.items()), {}
    for (i, relative), (j, convolution) in product(enumerate(RELATIVE), enumerate(CONVOLUTIONS)):
        shell, settings = shells[(i + j) % len(shells)]
        changes = {"kernel": KERNEL, **SIZES, **RELATIVE[relative], **CONVOLUTIONS[convolution], **settings}
        config = PRESETS["convbert-small" if i % 2 else "bert-small"]
        found[f"{relative}, {convolution}, {shell}"] = from_mapping(type(config), {**to_mapping(config), **changes})
    return found


COMBINATIONS = combinations()


def assert_close(found: Tensor, expected: Tensor, name: str = "") -> None:
    scale = max(1.0, float(expected.detach().abs().amax()))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10 * scale, msg=lambda text: f"{name}: {text}")


def test_states_and_gradients_are_those_of_a_textbook_composition(subtests):
    keep = torch.arange(11) < torch.tensor([[11], [7]])
    for name, config in COMBINATIONS.items():
        with subtests.test(name=name):
            model = build(config).double().eval()
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
            row = ids(2, 11)
            weights = dict(model.named_parameters())
            states, expected = model(row, keep)[keep], textbook.encode(config, weights, row, keep)[keep]
            assert_close(states, expected)
            probe = torch.randn_like(states)
            wanted = torch.autograd.grad((expected * probe).sum(), list(weights.values()))
            found = torch.autograd.grad((states * probe).sum(), list(weights.values()))
            largest = max(float(gradient.abs().amax()) for gradient in wanted)
            for parameter, ours, theirs in zip(weights, found, wanted, strict=True):
                assert_close(ours / largest, theirs / largest, parameter)


def test_a_text_has_the_same_states_alone_padded_and_packed(subtests):
    for name, config in COMBINATIONS.items():
        with subtests.test(name=name):
            model = model_of(config)
            one, other = ids(1, 7), ids(1, 4)
            packed = model(torch.cat([one, other], dim=1), torch.tensor([[1] * 7 + [2] * 4]))
            assert_same_states(packed[:, :7], model(one))
            assert_same_states(packed[:, 7:], model(other))
            row, keep = torch.cat([ids(1, 3), one], dim=1), torch.tensor([[False] * 3 + [True] * 7])
            assert_same_states(model(row, keep)[:, 3:], model(one))


def test_local_attention_takes_the_terms_of_scores(subtests):
    for indexed_by in ("query", "key"):
        with subtests.test(indexed_by=indexed_by):
            settings = {"relative": "key", "local": indexed_by, "local_kernel": KERNEL, "block_width": 8}
            model = model_of(replace(VARIANTS["mobilebert"], **settings, radius=3))
            one, other = ids(1, 7), ids(1, 4)
            packed = model(torch.cat([one, other], dim=1), torch.tensor([[1] * 7 + [2] * 4]))
            assert_same_states(packed[:, :7], model(one))
            without = build(replace(model.config, relative="none")).eval()
            without.load_state_dict(model.state_dict(), strict=False)
            assert not torch.allclose(without(one), model(one))


def test_every_preset_takes_the_keys_of_all_papers():
    changes = {"relative": "composite", "convolution": "span", "norm": "none"}
    for name in ("bert-tiny", "convbert-tiny", "composite-tiny", "mobilebert-nano", "ib-bert-nano"):
        config = PRESETS[name]
        model = build(from_mapping(type(config), {**to_mapping(config), **changes}), heads={"mlm": {}}, device="meta")
        mixer = model.blocks[0].mixer
        assert mixer.fixed is not None
        assert mixer.query_dynamic is not None
        assert isinstance(mixer.convolution, SpanConvolution)
        assert not model.fp16


def test_relative_is_short_for_the_terms_of_the_scores():
    for preset, relative in (("none", "none"), ("fixed", "fixed"), ("dynamic", "dynamic"), ("key", "key")):
        assert replace(PRESETS["composite-small"], relative=relative) == PRESETS[f"composite-small-{preset}"]
    assert replace(PRESETS["composite-small"], relative="composite") == PRESETS["composite-small"]


def test_a_convolution_halves_the_heads_unless_head_ratio_says_otherwise():
    as_convbert = build(replace(PRESETS["bert-small"], convolution="span"), device="meta")
    convbert = build("convbert-small", device="meta")
    assert {n: p.shape for n, p in as_convbert.named_parameters()} == {
        n: p.shape for n, p in convbert.named_parameters()
    }
    assert build(replace(PRESETS["bert-small"], convolution="span", head_ratio=1)).blocks[0].mixer.n_heads == 4


INVALID = {
    "local beside a convolution": (
        {"local": "query", "convolution": "span"},
        "local = 'query' .* requires convolution = 'none' and no head_ratio, got 'span'",
    ),
    "local with convolved values": (
        {"local": "key", "depthwise": True},
        "local attention can't be combined with depthwise or convolved",
    ),
    "shared values of no convolution": (
        {"shared_values": True},
        "shared_values requires convolution = 'span' or 'dynamic', got 'none'",
    ),
    "kernels per head that are not generated": (
        {"kernels_per_head": True, "convolution": "conventional"},
        "kernels_per_head requires convolution = 'span', 'dynamic' or 'gated', got 'conventional'",
    ),
    "half of one convolved head": (
        {"n_heads": 2, "convolution": "span", "convolved": "qk"},
        "n_heads must be even with convolved = 'qk', got 1",
    ),
    "heads that don't divide the block width": ({"block_width": 10}, r"n_heads \(4\) must divide block_width \(10\)"),
    "groups that do not divide": ({"groups": 5}, r"groups \(5\) .* 16 and 24"),
    "unknown term": ({"relative": "composit"}, "unknown relative 'composit'; did you mean 'composite'"),
}


def test_what_cannot_be_combined_is_an_error_with_the_settings():
    for changes, message in INVALID.values():
        with pytest.raises(InputError, match=message):
            build(replace(VARIANTS["bert-small"], **changes))


def test_options_of_convbert_have_the_parameters_of_its_equations():
    """d = 256, a = 128, K = 9 and two heads per layer: what each option adds to ConvBERT-small."""
    expected = {
        # The value projection of the convolution, d·a + a, is left out (Eq. 5 and 6).
        "shared_values": -12 * (256 * 128 + 128),
        # Two maps of 64 to 9 channels instead of one of 128 to 18 (Eq. 4).
        "kernels_per_head": -12 * (128 * 18 - 2 * 64 * 9),
    }
    small = PRESETS["convbert-small"]

    def count(config: Config) -> int:
        return sum(parameter.numel() for parameter in build(config, device="meta").parameters())

    assert {name: count(replace(small, **{name: True})) - count(small) for name in expected} == expected
    assert count(replace(small, shared_values=True)) == 12_749_016
    # A projection d -> 2a instead of the values, and no span-aware key: depthwise d·K, pointwise d·a + a.
    assert count(replace(small, convolution="gated")) - count(small) == 12 * (
        256 * 128 + 128 - 256 * 9 - 256 * 128 - 128
    )


def test_hybrid_is_another_name_for_these_configs():
    config = Hybrid(mixer="composite", convolution="span", shell="bottleneck", embeddings="trigram", block_width=64)
    assert config == replace(
        PRESETS["mobilebert"], **SMALL_HYBRID, convolution="span", relative="composite", block_width=64
    )
    assert build(Hybrid(mixer="attention", **SIZES, kernel=4)).blocks[0].mixer.convolution is None
    assert build(Hybrid(mixer="local", **SIZES, kernel=5)).blocks[0].mixer.taps == 5
    for settings, message in (
        ({"shell": "bottleneck"}, "block_width must be > 0 and < 256 with shell = 'bottleneck', got 0"),
        ({"mixer": "mixd"}, "unknown mixer 'mixd'; did you mean 'mixed'"),
    ):
        with pytest.raises(InputError, match=message):
            Hybrid(**settings)


SMALL_HYBRID = {
    "width": 256,
    "depth": 12,
    "inner": 1024,
    "feedforwards": 1,
    "norm": "layer",
    "activation": "gelu",
    "dropout": 0.1,
}
OLD_HYBRID = {
    **SIZES,
    "mixer": "attention",
    "shell": "bottleneck",
    "norm": "none",
    "embeddings": "trigram",
    "block_width": 8,
    "feedforwards": 1,
    "mixer_input": "shared",
    "head_ratio": 2,
    "convolution": "span",
    "fixed": True,
    "query_dynamic": True,
    "indexed_by": "query",
}


def rewrite(path: Path, family: str, config: dict[str, object], names: tuple[str, str] = ("", "")) -> None:
    """Rewrite a model folder as an earlier version wrote it."""
    content = json.loads((path / "config.json").read_text()) | {"family": family, "config": config}
    (path / "config.json").write_text(json.dumps(content))
    weights = load_file(path / "model.safetensors")
    save_file({name.replace(*names): tensor for name, tensor in weights.items()}, path / "model.safetensors")


def test_folders_of_earlier_versions_are_read(tmp_path):
    hybrid = replace(VARIANTS["mobilebert"], **SIZES, block_width=8, feedforwards=1, activation="gelu", dropout=0.1)
    local = VARIANTS["composite-small-convbert"]
    # The terms had no effect in local attention, but were in its config.
    with_terms = {"fixed": True, "query_dynamic": True, "convolved": "v"}
    new = (
        "relative",
        "initial",
        "convolution",
        "head_ratio",
        "kernel",
        "trigrams",
        "shared_values",
        "kernels_per_head",
    )
    saved = {name: value for name, value in to_mapping(local).items() if name not in new} | with_terms
    for config, family, old, names in (
        (hybrid, "hybrid", OLD_HYBRID, (".feedforward.0.", ".feedforward.")),
        (local, "composite", saved, ("", "")),
    ):
        model = model_of(config)
        folder.save(model, tmp_path / family)
        rewrite(tmp_path / family, family, old, names)
        again = folder.load(tmp_path / family)
        assert replace(again.config, initial=config.initial) == config
        row = ids(2, 5)
        assert torch.equal(again(row), model(row))


def test_generators_of_combinations_are_built(subtests):
    for name, config in COMBINATIONS.items():
        with subtests.test(name=name):
            build(generator(config, 1.0), device="meta")
