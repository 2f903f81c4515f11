"""What cannot be represented exactly on the other side, and folders that are not what they should be."""

import json
import re
from dataclasses import replace

import pytest
import torch
from originals import BODIES, original

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


@pytest.mark.parametrize(
    ("body", "changes", "sentence"),
    [
        ("bert", {"is_decoder": True}, "'is_decoder' is True in config.json: lightbert has no decoders"),
        ("electra", {"add_cross_attention": True}, "cross-attention"),
        ("bert", {"position_embedding_type": "relative_key"}, "'relative_key' in config.json: .* relative positions"),
        ("bert", {"pruned_heads": {"0": [1]}}, "pruned heads"),
        ("bert", {"quantization_config": {"bits": 4}}, "quantized weights"),
        ("bert", {"hidden_act": "gelu_nwe"}, "unknown hidden_act 'gelu_nwe'; did you mean 'gelu_new'"),
        ("bert", {"model_type": "convbrt"}, "unknown model_type 'convbrt'; did you mean 'convbert'"),
        ("bert", {"num_hidden_layers": 3}, "the checkpoint lacks 'encoder.layer.2."),
        ("bert", {"num_hidden_layers": 1}, "no place for: 'encoder.layer.1."),
        ("bert", {"vocab_size": 61}, r"has the shape \[60, 32\] where the config asks for \[61, 32\]"),
        ("bert", {"hidden_size": "wide"}, "'hidden_size' in config.json must be a whole number above 0, not 'wide'"),
        ("convbert", {"head_ratio": 0}, "'head_ratio' in config.json must be a whole number above 0, not 0"),
        ("bert", {"layer_norm_eps": None}, "'layer_norm_eps' in config.json must be a number, 0 or above, not None"),
        ("mobilebert", {"trigram_input": 1}, "'trigram_input' in config.json must be true or false, not 1"),
        ("convbert", {"conv_kernel_size": 4}, "'conv_kernel_size' is 4: a window around a token has an odd size"),
        ("convbert", {"num_attention_heads": 10}, "'hidden_size' 32 cannot be shared by 5 attention and 5 convolution"),
        ("mobilebert", {"use_bottleneck": False}, "'use_bottleneck' is false"),
        ("mobilebert", {"trigram_input": False}, "'trigram_input' is false"),
        ("mobilebert", {"use_bottleneck_attention": True}, "are both true in config.json"),
        ("mobilebert", {"key_query_shared_bottleneck": False}, r"reads the wide stream \(32\) in a block of width 16"),
        ("mobilebert", {"normalization_type": "manual"}, "'normalization_type' is 'manual'"),
        ("mobilebert-layer-norm", {"layer_norm_eps": 1e-12}, "uses an epsilon of 1e-05 in two of them"),
    ],
)
def test_a_config_that_we_cannot_represent_is_not_read(body, changes, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        lightbert.load(saved(tmp_path, body, **changes))


@pytest.mark.parametrize(
    ("body", "suffix", "changes", "sentence"),
    [
        ("bert", "ForTokenClassification", {"architectures": None}, "what the layer 'classifier' is for"),
        ("electra", "ForMultipleChoice", {}, "no choice head like the one of transformers' Electra"),
        ("convbert", "ForMultipleChoice", {}, "no choice head like the one of transformers' ConvBert"),
        ("convbert", "ForSequenceClassification", {"hidden_act": "relu"}, "no classify head like the one of"),
        ("bert", "ForMaskedLM", {"tie_word_embeddings": False}, "'tie_word_embeddings' is false"),
    ],
)
def test_a_head_that_we_cannot_represent_is_not_read(body, suffix, changes, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        lightbert.load(saved(tmp_path, body, suffix, **changes))


def test_untied_weights_are_not_read(tmp_path):
    folder = saved(tmp_path, "bert", "ForMaskedLM")
    tensors = read_tensors(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = torch.randn(60, 32)
    write_tensors(folder / "model.safetensors", tensors)
    with pytest.raises(InputError, match=r"differs from .*word_embeddings.* to which it should be tied"):
        lightbert.load(folder)


@pytest.mark.parametrize(
    ("preset", "changes", "heads", "sentence"),
    [
        ("composite-tiny", {}, {}, "no models like the composite family; the native folder works there"),
        ("convbert-tiny", {"convolution": "none"}, {}, "the convolution is 'none'"),
        ("convbert-tiny", {"n_heads": 1}, {}, "to the width 128, but n_heads 1 with head_ratio 2 gives 256"),
        ("convbert-tiny", {"head_ratio": 4}, {}, "n_heads 4 with head_ratio 4 gives 64"),
        ("convbert-tiny", {}, {"rtd": {}}, "no ConvBert class with the heads 'rtd'; choose which to keep"),
        ("convbert-tiny", {"activation": "relu"}, {"mlm": {}}, "has activation 'gelu' in its mlm head"),
        ("bert-tiny", {}, {"mlm": {}, "rtd": {}}, "no Electra class with the heads 'mlm', 'rtd'"),
        ("bert-tiny", {}, {"pooler": {}}, "no Electra class with the heads 'pooler'"),
        ("bert-tiny", {}, {"classify": {"labels": 3}}, "'gelu' in its classify head where this model has None"),
        ("bert-tiny", {"narrow": 128}, {"beam": {}}, "no Bert class with the heads 'beam'"),
        ("bert-tiny", {"positions": 0}, {}, "has no positions table"),
        ("mobilebert-nano", {"mixer_input": "wide"}, {}, "cannot run attention that reads the wide stream"),
        ("mobilebert-nano", {"norm": "layer"}, {}, "uses an epsilon of 1e-05 in two of them"),
    ],
)
def test_a_model_that_transformers_cannot_represent_is_not_written(preset, changes, heads, sentence, tmp_path):
    model = build(replace(PRESETS[preset], **(SMALL | changes)), heads=heads)
    with pytest.raises(InputError, match=sentence):
        huggingface.write(model, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_a_folder_without_config_is_not_a_model(tmp_path):
    with pytest.raises(InputError, match=r"has no config\.json"):
        lightbert.load(tmp_path)
    with pytest.raises(InputError, match="there is no model folder"):
        lightbert.load(tmp_path / "nothing")


def test_a_preset_is_built_and_not_loaded():
    with pytest.raises(InputError, match="'convbert-small' is a preset without weights: build it"):
        lightbert.load("convbert-small")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused_with_the_way_out(name, tmp_path):
    folder = saved(tmp_path)
    (folder / "model.safetensors").rename(folder / name)
    command = f"`lightbert convert {folder} NEW_FOLDER --to lightbert`"
    with pytest.raises(InputError, match=rf"is a pickle, .*{re.escape(command)}"):
        lightbert.load(folder)


def test_a_folder_without_weights_says_which_file_is_missing(tmp_path):
    folder = saved(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"there is no 'model\.safetensors'"):
        lightbert.load(folder)


def test_an_index_that_names_no_files_is_told(tmp_path):
    folder = saved(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(InputError, match="has no 'weight_map'"):
        lightbert.load(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "model-1.safetensors"}}')
    with pytest.raises(InputError, match=r"there is no file '.*model-1\.safetensors'"):
        lightbert.load(folder)


def test_names_that_do_not_fit_the_labels_are_not_written(tmp_path):
    model = build(replace(PRESETS["mobilebert-nano"], **SMALL), heads={"classify": {"labels": 3}})
    model.labels = ("yes", "no")
    with pytest.raises(InputError, match="the classify head has 3 labels, but 2 names: 'yes', 'no'"):
        huggingface.write(model, tmp_path / "hf")


def test_truncated_weights_are_told_from_wrong_ones(tmp_path):
    path = saved(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="truncated or not a safetensors file"):
        lightbert.load(tmp_path)


def test_every_body_is_described_by_its_own_config(tmp_path):
    for body in BODIES:
        original(body).save_pretrained(tmp_path / body)
        config = lightbert.load(tmp_path / body).config
        assert getattr(config, "padding", "released") == "released"
