"""Errors for models that the other library can't represent exactly, and for invalid folders."""

import json
import re
from dataclasses import replace

import pytest
import torch
from originals import original

import lightbert
from lightbert.errors import InputError
from lightbert.files import read_tensors, write_tensors
from lightbert.interop import huggingface
from lightbert.models import PRESETS, build

SMALL = {"vocab": 60, "positions": 40, "depth": 1}


def saved(folder, body="bert", suffix="Model", **changes):
    """A folder of transformers whose config.json was changed afterwards."""
    original(body, suffix).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_reading_an_unsupported_config_is_an_error(tmp_path_factory):
    for body, changes, sentence in (
        (
            "bert",
            {"is_decoder": True},
            "'is_decoder' in config.json must be False, got True; lightbert has no decoders",
        ),
        ("electra", {"add_cross_attention": True}, "cross-attention"),
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "must be 'absolute', got 'relative_key'; .* relative positions",
        ),
        ("bert", {"pruned_heads": {"0": [1]}}, "pruned heads"),
        ("bert", {"quantization_config": {"bits": 4}}, "quantized weights"),
        ("bert", {"hidden_act": "gelu_nwe"}, "unknown hidden_act 'gelu_nwe'; did you mean 'gelu_new'"),
        (
            "bert",
            {"model_type": "roberta"},
            r"model_type in '.*config\.json' must be one of bert, electra, convbert, mobilebert, lightbert, got "
            "'roberta'; lightbert has no such architecture",
        ),
        ("bert", {"num_hidden_layers": 3}, "don't match the config: 'encoder.layer.2.*missing"),
        ("bert", {"num_hidden_layers": 1}, "don't match the config: 'encoder.layer.1.*unexpected"),
        ("bert", {"vocab_size": 61}, r"must have the shape \[61, 32\], got \[60, 32\]"),
        ("bert", {"hidden_size": "wide"}, "'hidden_size' in config.json must be an integer > 0, got 'wide'"),
        ("convbert", {"head_ratio": 0}, "'head_ratio' in config.json must be an integer > 0, got 0"),
        ("bert", {"layer_norm_eps": None}, "'layer_norm_eps' in config.json must be a number >= 0, got None"),
        ("mobilebert", {"trigram_input": 1}, "'trigram_input' in config.json must be true or false, got 1"),
        ("convbert", {"conv_kernel_size": 4}, "'conv_kernel_size' in config.json must be odd, got 4"),
        (
            "convbert",
            {"num_attention_heads": 10},
            r"must be a multiple of 10 \(5 attention and 5 convolution heads\), got 32",
        ),
        ("mobilebert", {"use_bottleneck": False}, "'use_bottleneck' in config.json must be true"),
        ("mobilebert", {"trigram_input": False}, "'trigram_input' in config.json must be true"),
        ("mobilebert", {"use_bottleneck_attention": True}, "must not both be true in config.json"),
        ("mobilebert", {"key_query_shared_bottleneck": False}, r"'wide' requires block_width \(16\) == width \(32\)"),
        ("mobilebert", {"normalization_type": "manual"}, "must be 'no_norm' or 'layer_norm', got 'manual'"),
        ("mobilebert-layer-norm", {"layer_norm_eps": 1e-12}, "eps must be 1e-05 in transformers' MobileBERT"),
    ):
        tmp_path = tmp_path_factory.mktemp("case")
        with pytest.raises(InputError, match=sentence):
            lightbert.load(saved(tmp_path, body, **changes))


def test_reading_an_unsupported_head_is_an_error(tmp_path_factory):
    for body, suffix, changes, sentence in (
        ("bert", "ForTokenClassification", {"architectures": None}, "the layer 'classifier' is ambiguous"),
        ("electra", "ForMultipleChoice", {}, "doesn't support the choice head of transformers' Electra"),
        ("convbert", "ForMultipleChoice", {}, "doesn't support the choice head of transformers' ConvBert; save"),
        (
            "convbert",
            "ForSequenceClassification",
            {"hidden_act": "relu"},
            "the classify head of transformers' ConvBert with hidden_act = 'relu', only with 'gelu'; save the model",
        ),
        ("bert", "ForMaskedLM", {"tie_word_embeddings": False}, "'tie_word_embeddings' must be true"),
    ):
        tmp_path = tmp_path_factory.mktemp("case")
        with pytest.raises(InputError, match=sentence):
            lightbert.load(saved(tmp_path, body, suffix, **changes))


def test_label_names_that_are_not_an_object_of_names_are_an_error(tmp_path_factory):
    for names, given in (
        (["a", "b"], r"\['a', 'b'\]"),
        ("x", "'x'"),
        (3, "3"),
        ({"0": "no", "1": None}, "{'0': 'no', '1': None}"),
    ):
        for suffix in ("Model", "ForSequenceClassification"):
            tmp_path = tmp_path_factory.mktemp("case")
            sentence = (
                f"'id2label' in config.json must be an object of names, got {given}; write it as .*, or remove it"
            )
            with pytest.raises(InputError, match=sentence):
                lightbert.load(saved(tmp_path, "bert", suffix, id2label=names))


def test_reading_untied_weights_is_an_error(tmp_path):
    folder = saved(tmp_path, "bert", "ForMaskedLM")
    tensors = read_tensors(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = torch.randn(60, 32)
    write_tensors(folder / "model.safetensors", tensors)
    with pytest.raises(InputError, match=r"must equal .*word_embeddings.*; untied weights are not supported"):
        lightbert.load(folder)


def test_writing_a_model_that_transformers_does_not_support_is_an_error(tmp_path_factory):
    for preset, changes, heads, sentence in (
        ("composite-tiny", {}, {}, "doesn't support the composite family; transformers reads the native folder"),
        ("convbert-tiny", {"convolution": "none"}, {}, "must be 'span' in transformers' ConvBERT, got 'none'"),
        ("convbert-tiny", {"kernel": 4}, {}, "kernel must be odd in transformers' ConvBERT, got 4"),
        ("convbert-tiny", {"depthwise": True}, {}, "depthwise must be False in transformers' ConvBert, got True"),
        ("bert-tiny", {"relative": "fixed"}, {}, "fixed must be False in transformers' Electra, got True"),
        ("mobilebert-nano", {"convolution": "span"}, {}, "convolution must be 'none' in transformers' MobileBert"),
        ("convbert-tiny", {"n_heads": 1}, {}, "have the width 128 in .*, but n_heads = 1 and head_ratio = 2 give 256"),
        ("convbert-tiny", {"head_ratio": 4}, {}, "n_heads = 4 and head_ratio = 4 give 64"),
        (
            "convbert-tiny",
            {},
            {"rtd": {}},
            "no ConvBert class with the heads 'rtd'; drop some or all heads with --heads, such",
        ),
        ("convbert-tiny", {}, {"rtd": {}}, "native folder when lightbert is imported, without the heads 'rtd'$"),
        ("bert-tiny", {}, {"mlm": {}, "tokens": {"labels": 2}}, "native folder when lightbert is imported$"),
        ("convbert-tiny", {"activation": "relu"}, {"mlm": {}}, "activation of the mlm head must be 'gelu'"),
        ("bert-tiny", {}, {"mlm": {}, "rtd": {}}, "no Electra class with the heads 'mlm', 'rtd'"),
        ("bert-tiny", {}, {"pooler": {}}, "no Electra class with the heads 'pooler'"),
        ("bert-tiny", {}, {"classify": {"labels": 3}}, "hidden of the classify head must be 'gelu' in .*, got None"),
        ("bert-tiny", {"narrow": 128}, {"beam": {}}, "no Bert class .*=span.* without the heads 'beam'$"),
        ("bert-tiny", {"positions": 0}, {}, "requires position embeddings, got positions = 0"),
        ("mobilebert-nano", {"mixer_input": "wide"}, {}, "'wide' requires block_width"),
        ("mobilebert-nano", {"norm": "layer"}, {}, "eps must be 1e-05 in transformers' MobileBERT"),
    ):
        tmp_path = tmp_path_factory.mktemp("case")
        model = build(replace(PRESETS[preset], **(SMALL | changes)), heads=heads)
        with pytest.raises(InputError, match=sentence):
            huggingface.write(model, tmp_path / "hf")
        assert not (tmp_path / "hf").exists()


def test_loading_a_folder_without_config_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"is not a model folder: config\.json not found"):
        lightbert.load(tmp_path)
    with pytest.raises(InputError, match="not found; give a folder with config"):
        lightbert.load(tmp_path / "nothing")


def test_the_error_for_a_folder_without_weights_names_the_missing_file(tmp_path):
    folder = saved(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"'model\.safetensors' not found"):
        lightbert.load(folder)


def test_an_index_of_safetensors_that_points_outside_its_folder_is_an_error(tmp_path_factory):
    for name in ("../outside.safetensors", "inner/x.safetensors", "/outside.safetensors", ".."):
        tmp_path = tmp_path_factory.mktemp("case")
        folder = saved(tmp_path)
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
        with pytest.raises(InputError, match=rf"must name files in its folder, got '{re.escape(name)}'"):
            lightbert.load(folder)


def test_an_index_without_files_is_an_error(tmp_path):
    folder = saved(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(InputError, match="must contain a 'weight_map' object"):
        lightbert.load(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "model-1.safetensors"}}')
    with pytest.raises(InputError, match=r"'.*model-1\.safetensors' not found"):
        lightbert.load(folder)


def test_writing_a_wrong_number_of_label_names_is_an_error(tmp_path):
    model = build(replace(PRESETS["mobilebert-nano"], **SMALL), heads={"classify": {"labels": 3}})
    model.labels = ("yes", "no")
    with pytest.raises(InputError, match="the classify head has 3 labels, but 2 names: 'yes', 'no'"):
        huggingface.write(model, tmp_path / "hf")


def test_truncated_weights_are_an_error_that_says_so(tmp_path):
    path = saved(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="truncated or not a safetensors file"):
        lightbert.load(tmp_path)
