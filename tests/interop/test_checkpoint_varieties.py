"""Published checkpoints: of older versions, in several files, in half precision, with vocab.txt only."""

import json
from dataclasses import replace

import pytest
import torch
from originals import LABELS, assert_same_outputs, original, our_outputs, their_outputs
from words import SPECIAL, tokenizer

import lightbert
from lightbert.config import to_mapping
from lightbert.errors import InputError
from lightbert.files import read_tensors, write_tensors
from lightbert.interop import huggingface
from lightbert.models import PRESETS, build

transformers = pytest.importorskip("transformers")


def edited(folder, change):
    path = folder / "model.safetensors"
    write_tensors(path, change(read_tensors(path)), metadata={"format": "pt"})
    return lightbert.load(folder)


@pytest.fixture
def bert(tmp_path):
    model = original("bert", "ForPreTraining")
    model.save_pretrained(tmp_path)
    return model


def test_gamma_beta_buffers_and_tied_copies_of_older_versions_are_read(bert, tmp_path):
    def older(tensors):
        greek = {"weight": "gamma", "bias": "beta"}
        old = {}
        for name, tensor in tensors.items():
            stem, _, leaf = name.rpartition(".")
            old[f"{stem}.{greek[leaf]}" if stem.endswith("LayerNorm") else name] = tensor
        old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        old["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        return old | {"bert.embeddings.position_ids": torch.arange(40)[None]}

    assert_same_outputs(our_outputs(edited(tmp_path, older)), their_outputs(bert))


def test_heads_are_identified_by_their_weights_not_by_the_class_in_the_config(bert, tmp_path):
    """The best known BERT was saved for masked LM together with its pooler and next-sentence head."""
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    assert list(lightbert.load(tmp_path).heads) == ["mlm", "nsp"]


def test_the_prefix_of_the_body_is_optional(tmp_path):
    original("convbert").save_pretrained(tmp_path)
    plain = our_outputs(lightbert.load(tmp_path))
    prefixed = edited(tmp_path, lambda tensors: {f"convbert.{name}": tensor for name, tensor in tensors.items()})
    assert torch.equal(our_outputs(prefixed)["states"], plain["states"])


def test_a_pooler_next_to_a_head_of_an_older_version_is_kept(tmp_path):
    model = original("bert", "ForTokenClassification")
    model.save_pretrained(tmp_path / "before")
    pooler = {"bert.pooler.dense.weight": torch.randn(32, 32), "bert.pooler.dense.bias": torch.randn(32)}
    ours = edited(tmp_path / "before", lambda tensors: tensors | pooler)
    assert list(ours.heads) == ["tokens", "pooler"]
    huggingface.write(ours, tmp_path / "after")
    after = read_tensors(tmp_path / "after" / "model.safetensors")
    assert all(torch.equal(after[name], tensor) for name, tensor in pooler.items())


def test_a_model_without_pooler_stays_without_pooler(tmp_path):
    config = transformers.BertConfig(vocab_size=60, hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "before")
    ours = lightbert.load(tmp_path / "before")
    assert not ours.heads
    huggingface.write(ours, tmp_path / "after")
    before, after = (read_tensors(tmp_path / name / "model.safetensors") for name in ("before", "after"))
    assert before.keys() == after.keys()


def test_a_mobilebert_without_heads_on_cls_keeps_its_pooler_for_later_classifiers(tmp_path_factory):
    for suffix in ("ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering"):
        tmp_path = tmp_path_factory.mktemp("case")
        original("mobilebert", suffix).save_pretrained(tmp_path / "before")
        ours = lightbert.load(tmp_path / "before")
        assert huggingface.settings_of_head(ours, "classify") == {"hidden": "tanh"}
        huggingface.write(ours, tmp_path / "after")
        classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "after")
        assert classifier.config.classifier_activation
        assert classifier.mobilebert.pooler.dense.weight.shape == (32, 32)


def test_a_mobilebert_with_a_head_on_cls_keeps_its_activation(tmp_path_factory):
    for suffix in ("ForPreTraining", "ForSequenceClassification", "ForMultipleChoice"):
        for body in ("mobilebert", "mobilebert-raw"):
            tmp_path = tmp_path_factory.mktemp("case")
            model = original(body, suffix)
            model.save_pretrained(tmp_path / "before")
            huggingface.write(lightbert.load(tmp_path / "before"), tmp_path / "after")
            config = transformers.AutoConfig.from_pretrained(tmp_path / "after")
            assert config.classifier_activation == model.config.classifier_activation


def test_weights_in_several_files_are_merged(tmp_path):
    model = original("mobilebert", "ForMaskedLM")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert_same_outputs(our_outputs(lightbert.load(tmp_path)), their_outputs(model))


def test_half_precision_weights_are_converted_to_fp32(tmp_path):
    model = original("electra").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    ours = lightbert.load(tmp_path)
    assert ours.table.dtype is torch.float32
    assert torch.equal(ours.table.to(torch.bfloat16), model.embeddings.word_embeddings.weight)


def test_our_half_precision_weights_are_converted_to_fp32(tmp_path):
    model = lightbert.build("bert-tiny", seed=0).to(torch.bfloat16)
    lightbert.save(model, tmp_path / "half")
    ours = lightbert.load(tmp_path / "half")
    assert ours.table.dtype is torch.float32
    assert torch.equal(ours.table, model.table.float())


def test_label_names_and_dropout_are_kept_in_both_directions(tmp_path):
    original("convbert", "ForSequenceClassification", classifier_dropout=0.3).save_pretrained(tmp_path / "before")
    ours = lightbert.load(tmp_path / "before")
    assert ours.labels == ("no", "maybe", "yes")
    assert ours.head_settings["classify"] == {"hidden": "gelu", "labels": 3, "dropout": 0.3}
    lightbert.save(ours, tmp_path / "ours")
    huggingface.write(lightbert.load(tmp_path / "ours"), tmp_path / "after")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "after")
    assert (config.id2label, config.label2id) == (LABELS["id2label"], LABELS["label2id"])
    assert config.classifier_dropout == 0.3


def test_numbers_are_label_names_as_in_transformers(tmp_path):
    original("bert", "ForSequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"id2label": {"0": 1, "1": 3, "2": 5}}))
    assert lightbert.load(tmp_path).labels == ("1", "3", "5")


def test_our_model_round_trips_through_transformers_bit_for_bit(tmp_path_factory):
    for preset in ("bert-tiny", "convbert-tiny", "mobilebert-nano"):
        tmp_path = tmp_path_factory.mktemp("case")
        config = replace(PRESETS[preset], vocab=60, depth=2)
        ours = build(config, heads={"mlm": {}})
        huggingface.write(ours, tmp_path / "there")
        theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "there", output_loading_info=True)
        assert not any(info.values())
        theirs.save_pretrained(tmp_path / "again")
        back = lightbert.load(tmp_path / "again")
        assert ours.state_dict().keys() == back.state_dict().keys()
        assert all(torch.equal(tensor, back.state_dict()[name]) for name, tensor in ours.state_dict().items())
        # A model from transformers was trained to read the padding.
        changed = {"padding": "released"} if preset != "bert-tiny" else {}
        assert to_mapping(back.config) == to_mapping(config) | changed
        assert back.head_settings == ours.head_settings


def test_the_tokenizer_is_kept_in_both_directions(tmp_path):
    ours = build(replace(PRESETS["bert-tiny"], vocab=60, depth=1))
    ours.tokenizer = tokenizer()
    huggingface.write(ours, tmp_path / "there")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "there")
    expected = tokenizer().encode("w1 w2 [MASK]").ids
    assert words("w1 w2 [MASK]")["input_ids"] == expected
    assert (words.mask_token, words.pad_token_id, words.model_max_length) == ("[MASK]", 0, 128)
    assert lightbert.load(tmp_path / "there").tokenizer.encode("w1 w2 [MASK]").ids == expected


def test_a_vocab_txt_is_read_as_a_tokenizer(tmp_path):
    original("electra").save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "café", "cafe", "##s", "Cafe"]), encoding="utf-8")
    assert lightbert.load(tmp_path).tokenizer.encode("CAFÉS").ids == [2, 6, 7, 3]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert lightbert.load(tmp_path).tokenizer.encode("Cafes").ids == [2, 8, 7, 3]


def test_the_error_for_a_broken_tokenizer_names_it(tmp_path):
    original("electra").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer\.json' is not a valid tokenizer"):
        lightbert.load(tmp_path)
