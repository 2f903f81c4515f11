"""What prediction and vectors take as texts: strings, pairs and iterables of them; anything else is an error."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from every_kind import REVIEWS
from tiny_classifiers import tiny_model, write_tiny_model

import lightbert
from extras import needs_plots
from lightbert import cli
from lightbert.errors import InputError

TEXTS = ["good film", "a bad film was the film ."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return lightbert.load(write_tiny_model(tmp_path_factory.mktemp("model"), REVIEWS))


SINGLE = "texts must be a list of texts, got a single one"
WRONG = {
    "no texts": (None, "texts must be a string or a list of strings, got None"),
    "a number": (3, "texts must be a string or a list of strings, got 3"),
    "bytes": (b"good", "texts must be a string or a list of strings, got b'good'"),
    "a bytearray": (bytearray(b"good"), "texts must be a string or a list of strings, got bytearray"),
    "an array without dimensions": (np.array("good"), "texts must be a string or a list of strings, got array"),
    "a surrogate": ("a\ud800", r"the text 'a\\ud800' contains an unpaired surrogate; correct its encoding"),
    "a byte": (["good", "\udcff"], r"the text '\\udcff' is not UTF-8 \(byte 0xff\); correct its encoding"),
}


def test_what_is_no_text_is_an_error(model):
    for given in WRONG:
        texts, sentence = WRONG[given]
        for method in (model.predict, model.encode):
            with pytest.raises(InputError, match=sentence):
                method(texts)


def test_a_stream_of_one_text_is_an_error(model):
    for text in ["good", ("good", "bad"), {"text": "good"}]:
        with pytest.raises(InputError, match=SINGLE):
            next(model.stream(text))


def test_records_and_tables_have_no_vectors(model):
    with pytest.raises(InputError, match=SINGLE):
        model.encode({"text": "good"})
    table = SimpleNamespace(columns=["text"])
    with pytest.raises(InputError, match="texts must be a list of texts, got a SimpleNamespace; give one of its colum"):
        model.encode(table)


def test_columns_of_arrow_tables_are_texts(model):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"text": TEXTS})
    assert model.predict(table["text"]) == model.predict(TEXTS)
    np.testing.assert_array_equal(model.encode(table["text"]), model.encode(TEXTS))


def test_sizes_are_numbers(model):
    for settings, sentence in [
        ({"batch": "8"}, "batch must be an integer, got '8'"),
        ({"batch": None}, "batch must be an integer, got None"),
        ({"batch": True}, "batch must be an integer, got True"),
        ({"batch": -1}, "batch must be >= 0, got -1"),
        ({"length": 8.0}, "length must be an integer, got 8.0"),
    ]:
        for method in (model.predict, model.encode, lambda *given, **keys: next(model.stream(*given, **keys))):
            with pytest.raises(InputError, match=sentence):
                method(["good"], **settings)
        with pytest.raises(InputError, match=r"chunk must be an integer, got 1\.5"):
            next(model.stream(["good"], chunk=1.5))
        assert model.predict("good", batch=np.int64(2), length=np.int32(16))


@pytest.mark.parametrize("verb", ["predict", pytest.param("analyse", marks=needs_plots)])
def test_an_argument_that_is_not_utf_8_is_one_sentence(tmp_path, monkeypatch, capsys, verb):
    monkeypatch.chdir(tmp_path)
    folder = str(write_tiny_model(tmp_path / "model", REVIEWS))
    assert cli.main([verb, folder, *(["--text"] if verb == "analyse" else []), "good \udcff"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        r"lightbert: the text 'good \udcff' is not UTF-8 (byte 0xff); correct its encoding"
    )


def test_threads_predict_without_dropout_while_the_model_is_being_trained():
    model = lightbert.build(tiny_model(REVIEWS).config, heads={"classify": {"labels": 2}}, seed=0)
    model.tokenizer = tiny_model(REVIEWS).tokenizer
    model.blocks[0].dropout.p = 0.5
    expected = model.eval().predict(TEXTS * 10)
    model.train()
    found = []

    def predict():
        found.extend(model.predict(TEXTS * 10) == expected for _ in range(8))

    threads = [threading.Thread(target=predict) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [True] * 32
    assert all(each.training for each in model.modules())
