"""The class returned by `lightbert.load` and `lightbert.build`: predictions and vectors."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_classifiers import tiny_model, write_tiny_model
from tokenizers import Tokenizer

import lightbert
from lightbert.errors import InputError
from lightbert.models import Model, folder
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.text_model import TextModel

TEXTS = ["good film", "a bad film was the film .", "the", "bad bad bad bad bad bad bad bad"]
POOLS = ("mean", "cls", "max")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return lightbert.load(write_tiny_model(tmp_path_factory.mktemp("model"), Classify(("bad", "good"))))


def test_load_and_build_return_the_same_class(model):
    assert type(model) is type(lightbert.build("convbert-tiny")) is TextModel
    assert isinstance(model, Model)


def test_a_text_model_can_be_called_saved_and_copied(model, tmp_path):
    ids = torch.tensor([[2, 5, 7, 3]])
    states = model(ids, torch.ones_like(ids).bool())
    assert states.shape == (1, 4, 16)
    assert model.heads["classify"](states).shape == (1, 2)
    lightbert.save(model, tmp_path / "again")
    copied = copy.deepcopy(model)
    for other in (lightbert.load(tmp_path / "again"), copied):
        assert other.state_dict().keys() == folder.load(tmp_path / "again").state_dict().keys()
        torch.testing.assert_close(other(ids), model(ids))
        assert other.predict("good film") == model.predict("good film")


def test_one_text_gives_one_vector_and_several_a_row_each(model):
    for pool in POOLS:
        together = model.encode(TEXTS, pool=pool)
        assert together.shape == (len(TEXTS), 16)
        assert together.dtype == np.float32
        for text, row in zip(TEXTS, together, strict=True):
            alone = model.encode(text, pool=pool)
            assert alone.shape == (16,)
            # Alone, a text has no padding.
            np.testing.assert_allclose(row, alone, rtol=1e-5, atol=1e-6)


def test_vectors_do_not_depend_on_padding_even_if_the_model_reads_it():
    for pool in POOLS:
        plain = tiny_model(None)
        config = replace(plain.config, padding="released")
        model = TextModel(config.build().to_empty(device="cpu"), replace(plain.metadata, config=config)).eval()
        model.load_state_dict(plain.state_dict())
        assert model.released_padding
        alone = np.stack([model.encode(text, pool=pool) for text in TEXTS])
        np.testing.assert_allclose(model.encode(TEXTS, pool=pool), alone, rtol=1e-5, atol=1e-6)


def test_the_mean_is_over_the_tokens_of_the_text(model):
    states = model(torch.tensor([[2, 5, 7, 3]]))[0].detach().numpy()
    np.testing.assert_allclose(model.encode("good film"), states.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.encode("good film", pool="max"), states.max(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.encode("good film", pool="cls"), states[0], rtol=1e-5, atol=1e-6)


def test_a_tuple_is_a_pair_of_texts(model):
    pair = model.encode(("good", "film"))
    assert pair.shape == (16,)
    assert not np.allclose(pair, model.encode("good film"))
    np.testing.assert_allclose(model.encode([("good", "film"), "good film"])[0], pair, rtol=1e-5, atol=1e-6)


def test_normalized_vectors_have_length_one(model):
    vectors = model.encode(iter(TEXTS), normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(vectors, (plain := model.encode(TEXTS)) / np.linalg.norm(plain, axis=1)[:, None], 1e-5)


def test_no_text_gives_no_vectors(model):
    assert model.encode([]).shape == (0, 16)


def test_a_long_text_is_truncated(model):
    np.testing.assert_array_equal(model.encode("good film bad bad", length=4), model.encode("good film"))
    with pytest.raises(InputError, match="length must be <= 16, the positions of the model, got 17"):
        model.encode("good film", length=17)


def test_an_input_that_is_not_a_text_is_an_error(model):
    for texts, message in [(5, "got 5"), (b"film", "got b'film'"), ([None], "got None")]:
        with pytest.raises(InputError, match=f"must be a string .* {message}"):
            model.encode(texts)


def test_an_unknown_pool_is_an_error(model):
    with pytest.raises(InputError, match="unknown pool 'avg'"):
        model.encode("film", pool="avg")


def test_encoding_disables_dropout_and_restores_training_mode(model):
    training = copy.deepcopy(model).train()
    np.testing.assert_array_equal(training.encode(TEXTS), model.encode(TEXTS))
    assert all(module.training for module in training.modules())


def test_a_tokenizer_set_later_is_used(model):
    other = copy.deepcopy(model)
    words = Tokenizer.from_str(model.tokenizer.to_str())
    words.enable_truncation(3)
    words.enable_padding(length=9)
    other.tokenizer = words
    assert other.predict(TEXTS[1]) == model.predict(TEXTS[1])
    other.tokenizer = None
    with pytest.raises(InputError, match="the model has no tokenizer"):
        other.predict(TEXTS[1])


def test_a_text_model_compiles_and_exports(model):
    ids = torch.tensor([[2, 5, 7, 3, 5], [2, 7, 7, 7, 3]])
    exported = torch.export.export(model, (ids,))
    assert exported.state_dict.keys() == model.state_dict().keys()
    torch.testing.assert_close(exported.module()(ids), model(ids))
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(ids), model(ids))


def test_encode_has_the_names_of_sentence_transformers(model, capsys):
    vectors = model.encode(TEXTS, batch_size=2, normalize_embeddings=True, show_progress_bar=True)
    np.testing.assert_allclose(vectors, model.encode(TEXTS, normalize=True), rtol=1e-5, atol=1e-6)
    assert "encode" in capsys.readouterr().err


def test_probabilities_are_in_the_order_of_the_labels(model):
    found = model.predict_proba(TEXTS)
    expected = [[row["probabilities"][label] for label in model.labels] for row in model.predict(TEXTS)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert model.predict_proba(TEXTS[0]).shape == (2,)
    assert model.predict_proba([]).shape == (0, 2)
    number = tiny_model(Regress(0.0, 5.0))
    with pytest.raises(InputError, match="predict_proba requires a model that classifies texts, got one of kind 'regr"):
        TextModel(number, number.metadata).predict_proba(TEXTS)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_is_predicted_by_the_columns_that_the_model_knows(model, library):
    frames = pytest.importorskip(library)
    create = frames.table if library == "pyarrow" else frames.DataFrame
    pairs = copy.deepcopy(model)
    pairs.task |= {"pairs": True, "data": {"text": "body", "text_b": "reply"}}
    columns = {"id": [1, 2], "reply": ["bad", "film"], "body": TEXTS[:2]}
    assert pairs.predict(create(columns)) == pairs.predict(list(zip(TEXTS, columns["reply"], strict=False)))
    with pytest.raises(InputError, match="the table must have a column 'body', only 'id', 'note'; rename a column"):
        pairs.predict(create({"id": [1], "note": ["good film"]}))
    tagger = tiny_model(Tokens(("O", "B-X")))
    words = {"words": [["good", "film"], ["bad"]]}
    tagged = TextModel(tagger, tagger.metadata).predict(create(words))
    assert [[word["text"] for word in row["tags"]] for row in tagged] == words["words"]
