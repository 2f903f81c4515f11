"""Sentence encoders: the pooling of sentence-transformers is read, used, kept and written."""

import json

import numpy as np
import pytest
import torch
from words import tokenizer

import lightbert
from extras import needs_sentence_transformers
from lightbert.commands.convert import Config, run
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.models import PRESETS, Bert, build
from lightbert.models.pooling import Pooling

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10"]
TYPES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}


def write_published(folder, modules=("Transformer", "Pooling"), pooling=None, length=0):
    """Write a BERT with the module files of sentence-transformers, as on the Hub."""
    config = Bert(**{**vars(PRESETS["bert-tiny"]), "vocab": 60, "depth": 1, "narrow": PRESETS["bert-tiny"].width})
    model = build(config, seed=0)
    model.tokenizer = tokenizer()
    huggingface.write(model, folder)
    entries = [
        {"idx": index, "name": str(index), "path": TYPES[kind], "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    if length:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    return folder


@pytest.mark.parametrize(
    ("modules", "config", "expected"),
    [
        ((), {"word_embedding_dimension": 128}, Pooling("mean")),
        ((), {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling("cls")),
        (("Normalize",), {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, Pooling("max", True)),
        (("Normalize",), {"pooling_mode": "mean"}, Pooling("mean", True)),
    ],
)
def test_the_pooling_of_a_published_folder_is_read(tmp_path, modules, config, expected):
    write_published(tmp_path / "theirs", ("Transformer", "Pooling", *modules), config)
    assert lightbert.load(tmp_path / "theirs").pooling == expected


def test_vectors_use_the_pooling_of_the_model_by_default(tmp_path):
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    model = lightbert.load(write_published(tmp_path / "m", ("Transformer", "Pooling", "Normalize"), pooling, length=4))
    vectors = model.encode(TEXTS)
    np.testing.assert_array_equal(vectors, model.encode(TEXTS, pool="cls", normalize=True, length=4))
    assert not np.allclose(vectors, model.encode(TEXTS, pool="mean"))
    assert not np.allclose(vectors, model.encode(TEXTS, normalize=False))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_the_pooling_is_kept_in_both_layouts(tmp_path):
    theirs = write_published(tmp_path / "theirs", ("Transformer", "Pooling", "Normalize"), length=16)
    run(Config(str(theirs), tmp_path / "ours", "lightbert"))
    run(Config(str(tmp_path / "ours"), tmp_path / "back", "hf"))
    for folder in ("ours", "back"):
        assert lightbert.load(tmp_path / folder).pooling == Pooling("mean", True, 16)
    expected = lightbert.load(theirs).encode(TEXTS)
    np.testing.assert_array_equal(lightbert.load(tmp_path / "back").encode(TEXTS), expected)


def test_a_model_without_pooling_is_written_without_it(tmp_path):
    lightbert.save(lightbert.build("bert-tiny", seed=0), tmp_path / "ours")
    assert not (tmp_path / "ours" / "modules.json").exists()
    assert lightbert.load(tmp_path / "ours").pooling is None


@pytest.mark.parametrize(
    ("modules", "config", "sentence"),
    [
        (("Transformer", "Pooling", "Dense"), {}, "with the modules Transformer, Pooling, Dense"),
        (("Transformer", "Pooling"), {"pooling_mode_lasttoken": True}, "with the pooling mean \\+ lasttoken"),
    ],
)
def test_modules_that_can_not_be_computed_are_reported(tmp_path, modules, config, sentence):
    write_published(tmp_path / "theirs", modules, config)
    with pytest.warns(UserWarning, match=sentence):
        model = lightbert.load(tmp_path / "theirs")
    assert model.pooling is None


def test_a_damaged_module_file_is_an_error_that_names_it(tmp_path):
    write_published(tmp_path / "theirs")
    (tmp_path / "theirs" / "1_Pooling" / "config.json").write_text("[]")
    with pytest.raises(InputError, match=r"1_Pooling/config\.json' must be a JSON object; copy it again"):
        lightbert.load(tmp_path / "theirs")
    for damaged in ("{", "[" * 100_000):
        (tmp_path / "theirs" / "modules.json").write_text(damaged)
        with pytest.raises(InputError, match=r"modules\.json' can't be read as JSON"):
            lightbert.load(tmp_path / "theirs")


@needs_sentence_transformers
@pytest.mark.parametrize("layout", ["hf", "lightbert"])
@pytest.mark.parametrize("pool", ["mean", "cls", "max"])
def test_sentence_transformers_computes_the_same_vectors(tmp_path, layout, pool):
    from sentence_transformers import SentenceTransformer

    model = lightbert.load(write_published(tmp_path / "theirs"))
    model.pooling = Pooling(pool, normalize=True, length=8)
    if layout == "hf":
        huggingface.write(model, tmp_path / "written")
    else:
        lightbert.save(model, tmp_path / "written")
    with torch.inference_mode():
        theirs = SentenceTransformer(str(tmp_path / "written"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, model.encode(TEXTS), atol=1e-5)
