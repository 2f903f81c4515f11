"""Predictions from Python: one text, many, or a stream that never ends."""

import itertools
import random

import numpy as np
import pytest
import torch
from tiny_classifiers import tiny_model, write_tiny_model

import lightbert
from lightbert.data.batches.batch import Specials
from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.models import build
from lightbert.nn.mask import Mask
from lightbert.tasks.example import Example, Question, Tagged
from lightbert.tasks.kinds.classify.kind import Classify
from lightbert.tasks.kinds.labels.kind import Labels
from lightbert.tasks.kinds.regress.kind import Regress
from lightbert.tasks.kinds.spans.kind import Spans
from lightbert.tasks.kinds.tokens.kind import Tokens
from lightbert.tasks.predict.forward import run
from lightbert.tasks.predict.predictor import Predictor

REVIEWS = Classify(("bad", "good"))
KINDS = [
    (REVIEWS, {}),
    (Labels(("a", "b", "c")), {}),
    (Regress(0.0, 5.0), {}),
    (Tokens(("O", "B-X", "I-X")), {}),
    (Spans("span", stride=4, max_query=4, null_threshold=0.0), {}),
    (Spans("beam", stride=4, max_query=4), {"inner": 8, "beam": 5}),
]


def words(choose: random.Random, most: int) -> str:
    return " ".join(choose.choices(("good", "bad", "film", "a", "the", "was", "."), k=choose.randint(1, most)))


def texts_for(kind, count: int) -> list:
    choose = random.Random(count)
    if kind.name == "spans":
        return [{"question": words(choose, 4), "context": words(choose, 20)} for _ in range(count)]
    return [
        words(choose, 24) if number % 3 or kind.name == "tokens" else (words(choose, 9), words(choose, 9))
        for number in range(count)
    ]


def assert_close(one, other) -> None:
    """Compare predictions: numbers almost, all else exactly."""
    if isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    else:
        assert one == other


@pytest.mark.parametrize(("kind", "settings"), KINDS, ids=lambda value: repr(value)[:16])
def test_a_prediction_depends_on_nothing_but_its_text(kind, settings):
    model, texts = tiny_model(kind, **settings), texts_for(kind, 23)
    alone = [Predictor(model, chunk=1).predict([text])[0] for text in texts]
    assert_close(Predictor(model).predict(texts), alone)
    assert_close(Predictor(model, batch=1, chunk=7).predict(texts), alone)
    assert_close(Predictor(model, batch=100).predict(texts[::-1])[::-1], alone)


def test_padding_is_kept_from_models_that_would_read_it():
    model, texts = tiny_model(REVIEWS), texts_for(REVIEWS, 20)
    model.released_padding = True
    alone = [Predictor(model).predict(text) for text in texts]
    assert_close(Predictor(model).predict(texts), alone)


def test_batches_without_padding_are_not_masked(monkeypatch):
    masks = []

    def noted(self, mask, **settings):
        masks.append(mask)
        initialise(self, mask, **settings)

    initialise = Mask.__init__
    monkeypatch.setattr(Mask, "__init__", noted)
    Predictor(tiny_model(REVIEWS), chunk=4).predict(["good film", "bad film", "the film"])
    assert masks == [None, None]


def test_one_text_gives_one_prediction_and_several_a_list():
    predictor = Predictor(tiny_model(REVIEWS))
    one = predictor.predict("good film")
    assert one.keys() == {"label", "probability", "probabilities"}
    assert_close(predictor.predict(["good film"]), [one])
    assert_close(predictor.predict({"text": "good film", "id": 7}), one)
    assert_close(predictor.predict(Example("good film")), one)
    assert_close(predictor.predict(iter(["good film", "bad"])), predictor.predict(["good film", "bad"]))
    pair = predictor.predict(("good film", "bad"))
    assert_close(predictor.predict({"text": "good film", "text_b": "bad"}), pair)
    assert predictor.predict([]) == []


def test_questions_and_words_are_read_by_the_models_that_know_them():
    answers = Predictor(tiny_model(Spans(stride=4, max_query=4)))
    one = answers.predict({"question": "a film", "context": "the film was good"})
    assert "the film was good"[one["start"] : one["end"]] == one["answer"]
    assert_close(answers.predict(("a film", "the film was good")), one)
    assert_close(answers.predict(Question("a film", "the film was good")), one)
    tagger = Predictor(tiny_model(Tokens(("O", "B-X"))))
    tagged = tagger.predict({"words": ["good", "film"]})
    assert [word["text"] for word in tagged["tags"]] == ["good", "film"]
    assert_close(tagger.predict(Tagged(("good", "film"))), tagged)
    assert_close(tagger.predict("good film"), tagged)


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (REVIEWS, 7, "7 is no text; give a string"),
        (REVIEWS, {"txt": "film", "id": 1}, "the record has no 'text', only txt, id"),
        (REVIEWS, {"text": 3}, "the record's 'text' is no text: 3"),
        (REVIEWS, Question("a", "b"), "is not what this model reads: it needs a text"),
        (Spans(), "film", "'film' is not what this model reads: it needs a question and a context"),
        (Spans(), {"question": "film"}, "the record has no 'context'"),
        (Tokens(("O", "X")), {"words": "good film"}, "the record's 'words' are no list of words"),
    ],
)
def test_what_a_model_cannot_read_is_refused(kind, given, problem):
    with pytest.raises(InputError, match=problem):
        Predictor(tiny_model(kind)).predict([given])


class Stubbed(Predictor):
    """Answers each text with itself, and notes how many were given at once."""

    def __init__(self, **settings) -> None:
        super().__init__(tiny_model(REVIEWS), **settings)
        self.sizes = []

    def _predictions(self, kind, examples, batch):
        self.sizes.append(len(examples))
        return [{"label": example.text} for example in examples]


def test_a_long_stream_is_read_a_chunk_at_a_time():
    taken, ahead = itertools.count(), []
    read = 0

    def source():
        nonlocal read
        for number in range(100_000):
            read = next(taken) + 1
            yield str(number)

    predictor = Stubbed()
    for answered, prediction in enumerate(predictor.stream(source())):
        ahead.append(read - answered)
        assert prediction["label"] == str(answered)
    assert len(ahead) == 100_000
    assert max(ahead) <= 1024
    assert predictor.sizes[:7] == [1, 4, 16, 64, 256, 1024, 1024]


def test_each_text_is_answered_at_once_when_a_chunk_is_one_text():
    predictor, asked = Stubbed(chunk=1), []
    answers = predictor.stream(asked.append(text) or text for text in ("a", "b", "c"))
    assert [(next(answers)["label"], list(asked)) for _ in range(2)] == [("a", ["a"]), ("b", ["a", "b"])]


def test_texts_that_are_cut_are_counted_and_windows_are_not():
    predictor = Predictor(tiny_model(REVIEWS))
    predictor.predict(["good " * 14, "good " * 15, "bad " * 99])
    assert predictor.cut == 2
    short = Predictor(tiny_model(REVIEWS), length=4)
    assert_close(short.predict("good film bad bad"), predictor.predict("good film"))
    assert short.cut == 1
    tagger = Predictor(tiny_model(Tokens(("O", "B-X"))))
    assert len(tagger.predict("good " * 40)["tags"]) == 40
    assert tagger.cut == 0


@pytest.mark.parametrize("given", [None, 5, b"film"])
def test_what_is_neither_a_text_nor_several_is_refused(given):
    with pytest.raises(InputError, match=f"{given!r} is no text; give a string, or a list of strings"):
        Predictor(tiny_model(REVIEWS)).predict(given)


def test_a_loaded_model_predicts_and_a_built_one_says_how(tmp_path):
    write_tiny_model(tmp_path / "model", REVIEWS)
    model = lightbert.load(tmp_path / "model")
    assert model.predict("good film")["label"] in ("bad", "good")
    assert len(model.predict(["good film", ("bad", "film")], batch=2)) == 2
    assert model.state_dict().keys() == tiny_model(REVIEWS).state_dict().keys()
    lightbert.save(model, tmp_path / "again")
    assert_close(lightbert.load(tmp_path / "again").predict("good film"), model.predict("good film"))
    with pytest.raises(InputError, match="this model was built, not loaded"):
        build("convbert-tiny").predict("good film")


def test_a_model_that_is_being_trained_goes_on_afterwards():
    model = tiny_model(REVIEWS).train()
    one, other = (Predictor(model).predict("good film") for _ in range(2))
    assert one == other
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_models_without_head_or_tokenizer_and_lengths_beyond_them_are_refused():
    with pytest.raises(InputError, match="has no head for a task: fine-tune it first"):
        Predictor(tiny_model(None)).predict("film")
    bare = tiny_model(REVIEWS)
    bare.tokenizer = None
    with pytest.raises(InputError, match="has no tokenizer"):
        Predictor(bare).predict("film")
    with pytest.raises(InputError, match="length = 17, but the model reads 16 tokens at most"):
        Predictor(tiny_model(REVIEWS), length=17)
    with pytest.raises(InputError, match="batch = -1"):
        Predictor(tiny_model(REVIEWS), batch=-1)


def test_a_head_from_elsewhere_predicts_with_numbered_labels():
    assert Predictor(tiny_model(None, "classify", labels=3)).predict("film")["label"].startswith("LABEL_")


@pytest.mark.parametrize("head", ["tokens", "span", "beam"])
def test_outputs_have_no_padding_in_them(head):
    settings = {"tokens": {"labels": 3}, "span": {}, "beam": {"inner": 8, "beam": 6}}[head]
    model = tiny_model(None, head, **settings)
    rows = [[2, 5, 3, 6, 7, 3], [2, 5, 3, 6, 6, 6, 7, 8, 9, 3]]
    outputs = run(model, head, Features.of(rows, [3, 3]), Specials(0, 2, 3, 4))
    for row, given in zip(rows, outputs, strict=True):
        if head == "beam":
            start, end, score, impossible = given
            assert len(start) == len(end) == len(score) > 0
            assert impossible.shape == ()
            assert np.isfinite(score).all()
            assert set(start.tolist()) | set(end.tolist()) <= {0, *range(3, len(row))}
        else:
            assert all(len(each) == len(row) for each in given)


def test_outputs_are_single_precision_without_gradient():
    model = tiny_model(REVIEWS).to(torch.bfloat16)
    ((logits,),) = run(model, "classify", Features.of([[2, 5, 3]], [3]), Specials(0, 2, 3, 4))
    assert logits.dtype == np.float32
    assert logits.shape == (2,)
