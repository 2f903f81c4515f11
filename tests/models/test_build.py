"""Building by name or by config, with heads, on any device; and validation of configs."""

from dataclasses import replace

import pytest
import torch
from small import VARIANTS, ids

from lightbert.errors import InputError
from lightbert.models import FAMILIES, add_head, build, preset

BERT, MOBILE = VARIANTS["bert-small"], VARIANTS["mobilebert"]


def test_a_model_keeps_its_config_and_its_parameters_are_in_embeddings_and_blocks():
    for config in VARIANTS.values():
        model = build(config, device="meta")
        assert model.config == config
        assert type(config) in FAMILIES.values()
        assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"embeddings", "blocks"}


def test_on_the_meta_device_a_model_has_shapes_but_no_weights():
    model = build("ib-bert-large", device="meta")
    assert model.config is preset("ib-bert-large")
    assert all(parameter.is_meta for parameter in model.parameters())


def test_the_error_for_an_unknown_preset_suggests_the_nearest():
    for name, nearest in (
        ("convbert-smal", "convbert-small"),
        ("mobile-bert", "mobilebert"),
        ("ib-bert", "ib-bert-nano"),
        ("composite-small-convkqv", "composite-small-convqkv"),
    ):
        with pytest.raises(InputError, match=f"unknown preset '{name}'; did you mean '{nearest}'"):
            build(name)


def test_the_same_seed_builds_the_same_weights():
    def drawn(seed: int) -> dict[str, torch.Tensor]:
        return build(BERT, heads={"mlm": {}}, seed=seed).state_dict()

    first, second, other = drawn(1), drawn(1), drawn(2)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert not torch.equal(first["embeddings.word.weight"], other["embeddings.word.weight"])


def test_heads_get_the_defaults_of_their_family():
    heads = {"mlm": {}, "rtd": {}, "nsp": {}, "classify": {"labels": 3}}
    assert build(BERT, heads=heads).head_settings == {
        "mlm": {"hidden": 8, "activation": "gelu", "eps": 1e-12},
        "rtd": {"activation": "gelu"},
        "nsp": {"pooled": True},
        "classify": {"labels": 3},
    }
    mobile = build(MOBILE, heads=heads)
    assert mobile.head_settings["mlm"] == {"hidden": 16, "activation": "relu", "eps": 1e-12}
    assert mobile.head_settings["nsp"] == {"pooled": False}
    assert mobile.heads["mlm"].extra.shape == (50, 16 - 8)


def test_a_new_head_has_the_dtype_of_its_model():
    model = build(BERT).to(torch.bfloat16)
    head = add_head(model, "classify", {"labels": 2})
    assert {parameter.dtype for parameter in head.parameters()} == {torch.bfloat16}
    assert head(model(ids(2, 5))).dtype is torch.bfloat16


def test_the_error_for_an_unknown_head_suggests_the_nearest():
    with pytest.raises(InputError, match="unknown head 'clasify'; did you mean 'classify'"):
        build(BERT, heads={"clasify": {}})


def test_the_error_for_invalid_head_settings_has_the_settings():
    for settings in ({}, {"labels": 2, "label": 3}):
        with pytest.raises(InputError, match=r"invalid settings .* for the classify head: .*label"):
            build(BERT, heads={"classify": settings})


INVALID = {
    "zero heads": (replace(BERT, n_heads=0), "n_heads must be >= 1, got 0"),
    "no layers": (replace(BERT, depth=0), "depth must be >= 1, got 0"),
    "zero groups": (replace(VARIANTS["convbert-small"], groups=0), "groups must be >= 1, got 0"),
    "zero ratio": (replace(VARIANTS["convbert-small"], head_ratio=0), "head_ratio must be >= 1, got 0"),
    "negative radius": (replace(VARIANTS["composite-small"], radius=-1), "radius must be >= 0, got -1"),
    "negative positions": (replace(BERT, positions=-5), "positions must be >= 0, got -5"),
    "heads that don't divide the width": (replace(BERT, n_heads=5), r"n_heads \(5\) must divide the width, 16"),
    "mixed heads": (replace(VARIANTS["convbert-small"], n_heads=3), r"n_heads \(3\) must divide the width, 16"),
    "mobile heads": (replace(MOBILE, n_heads=5), r"n_heads \(5\) must divide block_width \(12\)"),
    "groups": (replace(VARIANTS["convbert-small"], groups=3), r"groups \(3\) .* 16 and 24"),
    "unknown convolution": (replace(VARIANTS["convbert-small"], convolution="spam"), "'spam'; did you mean 'span'"),
    "unknown padding": (replace(MOBILE, padding="release"), "'release'; did you mean 'released'"),
    "unknown activation": (replace(BERT, activation="gelo"), "unknown activation 'gelo'; did you mean 'gelu'"),
    "width as text": (replace(BERT, width="16"), "width must be an integer, got '16'"),
    "a dropout of everything": (replace(BERT, dropout=1.0), r"dropout must be in \[0, 1\), got 1\.0"),
    "a negative dropout": (replace(BERT, attention_dropout=-0.1), r"attention_dropout must be in \[0, 1\), got -0\.1"),
    "a negative eps": (replace(BERT, eps=-1.0), r"eps must be >= 0, got -1\.0"),
    "an infinite eps": (replace(BERT, eps=float("inf")), "eps must be a finite number, got inf"),
}


def test_an_invalid_config_raises_an_error_with_its_values():
    for config, message in INVALID.values():
        with pytest.raises(InputError, match=message):
            build(config)


def test_a_model_that_is_no_config_is_an_error():
    for given in (None, 3, {"width": 16}, type(BERT)):
        with pytest.raises(InputError, match="model must be the name of a preset or a config, got "):
            build(given)


def test_heads_without_settings_are_an_error():
    for heads in ("mlm", ["mlm"]):
        with pytest.raises(InputError, match=r"heads must map kinds to their settings, such as \{'mlm': \{\}\}, got "):
            build(BERT, heads)
