"""Sentence encoders: the pooling of sentence-transformers is read, used, kept and written."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from words import tokenizer

import lightbert
from extras import needs_sentence_transformers
from lightbert.commands.convert import Config, run
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.models import PRESETS, Bert, add_head, build
from lightbert.nn.pooling_settings import Pooling

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10"]
TYPES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}
PROMPTS = {"query": "w9 ", "document": "w8 w7 "}


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


def test_the_pooling_of_a_published_folder_is_read(tmp_path_factory):
    for modules, config, expected in (
        ((), {"word_embedding_dimension": 128}, Pooling("mean")),
        ((), {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling("cls")),
        (("Normalize",), {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, Pooling("max", True)),
        (("Normalize",), {"pooling_mode": "mean"}, Pooling("mean", True)),
    ):
        tmp_path = tmp_path_factory.mktemp("case")
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


def test_a_model_without_pooling_is_written_without_it(tmp_path):
    lightbert.save(lightbert.build("bert-tiny", seed=0), tmp_path / "ours")
    assert not (tmp_path / "ours" / "modules.json").exists()
    assert lightbert.load(tmp_path / "ours").pooling is None


@pytest.mark.parametrize(
    ("modules", "config", "sentence"),
    [
        (("Transformer", "Pooling", "Normalize", "Dense"), {}, "with the modules Transformer, Pooling, Normalize, Den"),
        (("Transformer", "Pooling"), {"pooling_mode_lasttoken": True}, "with the pooling mean \\+ lasttoken"),
        (("Transformer", "Pooling"), {"include_prompt": False}, "with pooling that leaves out the prompt"),
        (("Transformer", "Pooling", "Dense"), {"dense": {"use_residual": True}}, "with a Dense module with"),
        (("Transformer", "Pooling", "Dense"), {"dense": {"activation_function": "x.ReLU"}}, "with a Dense module with"),
    ],
)
def test_modules_that_can_not_be_computed_are_reported(tmp_path, modules, config, sentence):
    dense = config.pop("dense", {})
    write_published(tmp_path / "theirs", modules, config)
    (tmp_path / "theirs" / "2_Dense").mkdir()
    (tmp_path / "theirs" / "2_Dense" / "config.json").write_text(json.dumps(dense))
    with pytest.warns(UserWarning, match=sentence):
        model = lightbert.load(tmp_path / "theirs")
    assert model.pooling is None


def test_a_damaged_module_file_is_an_error_that_names_it(tmp_path):
    write_published(tmp_path / "theirs")
    (tmp_path / "theirs" / "1_Pooling" / "config.json").write_text("[]")
    with pytest.raises(InputError, match=r"1_Pooling/config\.json' is not a JSON object; copy it again"):
        lightbert.load(tmp_path / "theirs")
    for damaged in ("{", "[" * 100_000):
        (tmp_path / "theirs" / "modules.json").write_text(damaged)
        with pytest.raises(InputError, match=r"modules\.json' is not valid JSON"):
            lightbert.load(tmp_path / "theirs")


def write_projected(folder, pool="mean", activation="none", **settings):
    """Write a sentence encoder with a projection and prompts, in our layout."""
    model = lightbert.load(write_published(folder.with_name(f"{folder.name}-body")))
    add_head(model, "vector", {"size": 7, "pool": pool, "activation": activation}, seed=1)
    torch.nn.init.normal_(model.heads["vector"].output.bias, generator=torch.Generator().manual_seed(2))
    model.pooling = Pooling(pool, projection=True, prompts=PROMPTS, default_prompt="document", **settings)
    lightbert.save(model, folder)
    return folder


def test_a_head_for_vectors_is_only_used_if_the_folder_says_so(tmp_path):
    model = lightbert.load(write_projected(tmp_path / "m"))
    states = model.encode(TEXTS, pool="mean", prompt="")
    assert (model.encode(TEXTS).shape, states.shape) == ((3, 7), (3, model.width))
    head = model.heads["vector"].output
    expected = torch.from_numpy(states) @ head.weight.T + head.bias
    np.testing.assert_allclose(model.encode(TEXTS, prompt=""), expected.detach().numpy(), atol=1e-5)
    model.pooling = None
    np.testing.assert_array_equal(model.encode(TEXTS), states)
    run(Config(str(tmp_path / "m"), tmp_path / "raw", "lightbert", projection=False))
    kept = lightbert.load(tmp_path / "raw")
    assert "vector" in kept.heads
    np.testing.assert_array_equal(kept.encode(TEXTS, prompt=""), states)


def test_prompts_and_sizes_are_those_of_the_folder(tmp_path):
    model = lightbert.load(write_projected(tmp_path / "m", normalize=True, sizes=(4, 2)))
    documents = model.encode(["w8 w7 " + text for text in TEXTS], prompt="")
    np.testing.assert_array_equal(model.encode(TEXTS), documents)
    queries = model.encode(TEXTS, prompt_name="query")
    np.testing.assert_array_equal(queries, model.encode(TEXTS, prompt="w9 "))
    assert not np.allclose(queries, documents, atol=1e-3)
    small = model.encode(TEXTS, size=4)
    np.testing.assert_allclose(small, documents[:, :4] / np.linalg.norm(documents[:, :4], axis=1)[:, None], atol=1e-6)
    with pytest.raises(InputError, match="size must be one of 7, 4, 2, the sizes that the model was trained for, got"):
        model.encode(TEXTS, size=3)
    with pytest.raises(InputError, match="prompt 'question'"):
        model.encode(TEXTS, prompt_name="question")


def test_the_declaration_is_kept_in_all_layouts(tmp_path):
    write_projected(tmp_path / "whole", normalize=True)
    assert lightbert.load(tmp_path / "whole").pooling.length == 0
    assert json.loads((tmp_path / "whole" / "sentence_bert_config.json").read_text())["max_seq_length"] == 128
    write_projected(tmp_path / "ours", "cls", "tanh", normalize=True, length=9, sizes=(4, 2))
    declared = lightbert.load(tmp_path / "ours")
    for layout in ("hf", "lightbert", "sentence-transformers"):
        run(Config(str(tmp_path / "ours"), tmp_path / layout, layout))
        card = (tmp_path / layout / "README.md").read_text()
        assert "pipeline_tag: sentence-similarity" in card
        assert ("import lightbert " in card) == (layout == "lightbert")
        assert json.loads((tmp_path / layout / "sentence_bert_config.json").read_text())["max_seq_length"] == 9
        back = lightbert.load(tmp_path / layout)
        assert back.pooling == declared.pooling
        assert back.head_settings["vector"] == declared.head_settings["vector"]
        np.testing.assert_array_equal(back.encode(TEXTS), declared.encode(TEXTS))
    # A folder that lightbert wrote is replaced.
    lightbert.save(back, tmp_path / "sentence-transformers")


def test_a_pooling_without_its_head_is_not_saved(tmp_path):
    model = lightbert.load(write_published(tmp_path / "m"))
    model.pooling = Pooling(projection=True)
    for use in (lambda: lightbert.save(model, tmp_path / "x"), lambda: model.encode(TEXTS)):
        with pytest.raises(InputError, match=r"pooling\.projection requires a model with the head 'vector'"):
            use()
    add_head(model, "vector", {"size": 7, "pool": "max"})
    with pytest.raises(InputError, match=r"pooling\.pool must be 'max', that of the head 'vector', got 'mean'"):
        lightbert.save(model, tmp_path / "x")


def test_damaged_weights_of_a_dense_module_are_an_error(tmp_path):
    weights = write_projected(tmp_path / "m") / "2_Dense" / "model.safetensors"
    for tensors, problem in (
        ({"linear.weight": torch.zeros(7, 9)}, "must have a 'linear.weight' for 128 inputs"),
        ({"linear.weight": torch.full((7, 128), torch.nan)}, "must be finite"),
    ):
        save_file(tensors, weights)
        with pytest.raises(InputError, match=problem):
            lightbert.load(tmp_path / "m")
    weights.unlink()
    with pytest.raises(InputError, match=r"2_Dense/model\.safetensors' not found"):
        lightbert.load(tmp_path / "m")


@needs_sentence_transformers
@pytest.mark.parametrize("layout", ["hf", "lightbert", "sentence-transformers"])
@pytest.mark.parametrize("pool", ["mean", "cls", "max"])
def test_sentence_transformers_computes_the_same_vectors(tmp_path, layout, pool):
    from sentence_transformers import SentenceTransformer

    activation = "tanh" if pool == "cls" else "none"
    write_projected(tmp_path / "ours", pool, activation, normalize=pool != "max", length=8)
    run(Config(str(tmp_path / "ours"), tmp_path / "written", layout))
    ours = lightbert.load(tmp_path / "written")
    theirs = SentenceTransformer(str(tmp_path / "written"), device="cpu")
    with torch.inference_mode():
        for name in (None, "query"):
            np.testing.assert_allclose(
                theirs.encode(TEXTS, prompt_name=name), ours.encode(TEXTS, prompt_name=name), atol=1e-5
            )
    # What sentence-transformers saves after more training is read again.
    with torch.no_grad():
        theirs[2].linear.weight.mul_(-1.5)
        vectors = theirs.encode(TEXTS)
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    again = lightbert.load(tmp_path / "theirs")
    np.testing.assert_allclose(vectors, again.encode(TEXTS), atol=1e-5)
    assert again.pooling == ours.pooling


@needs_sentence_transformers
def test_sentence_transformers_computes_the_vectors_of_masked_convolutions(tmp_path):
    from sentence_transformers import SentenceTransformer

    model = lightbert.build("convbert-tiny", seed=0)
    model.tokenizer = tokenizer()
    lightbert.save(model, tmp_path / "ours")
    done = run(Config(str(tmp_path / "ours"), tmp_path / "written", "sentence-transformers", normalize=True))
    assert "import lightbert before" in done.notes[0]
    with torch.inference_mode():
        theirs = SentenceTransformer(str(tmp_path / "written"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, model.encode(TEXTS, normalize=True), atol=1e-5)
