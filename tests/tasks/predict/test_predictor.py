"""Predictions from Python: single texts, lists and endless streams."""

import itertools
import random

import numpy as np
import pytest
import torch
from every_kind import KINDS, REVIEWS, assert_close, words
from tiny_classifiers import tiny_model, write_tiny_model
from vocabularies import small_tokenizer

import lightbert
from lightbert.data.features import Features, Specials
from lightbert.errors import InputError
from lightbert.nn.inference import Inference
from lightbert.nn.mask import Mask
from lightbert.tasks.example import Example, Question, TaggedSentence
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.predictor import Predictor
from lightbert.tasks.predict.runtime import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime


def texts_for(kind, count: int) -> list:
    choose = random.Random(count)
    if kind.name == "spans":
        return [{"question": words(choose, 4), "context": words(choose, 20)} for _ in range(count)]
    return [
        words(choose, 24) if number % 3 or kind.name == "tokens" else (words(choose, 9), words(choose, 9))
        for number in range(count)
    ]


def test_a_prediction_depends_only_on_its_text():
    for kind, settings in KINDS:
        model, texts = tiny_model(kind, **settings), texts_for(kind, 23)
        alone = [Predictor(model, chunk=1).predict([text])[0] for text in texts]
        assert_close(Predictor(model).predict(texts), alone)
        assert_close(Predictor(model, batch=1, chunk=7).predict(texts), alone)
        assert_close(Predictor(model, batch=100).predict(texts[::-1])[::-1], alone)


def test_models_that_read_padding_get_batches_without_padding():
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


def test_questions_and_words_are_accepted_by_their_models():
    answers = Predictor(tiny_model(Spans(stride=4, max_query=4)))
    one = answers.predict({"question": "a film", "context": "the film was good"})
    assert "the film was good"[one["start"] : one["end"]] == one["answer"]
    assert_close(answers.predict(("a film", "the film was good")), one)
    assert_close(answers.predict(Question("a film", "the film was good")), one)
    tagger = Predictor(tiny_model(Tokens(("O", "B-X"))))
    tagged = tagger.predict({"words": ["good", "film"]})
    assert [word["text"] for word in tagged["tags"]] == ["good", "film"]
    assert_close(tagger.predict(TaggedSentence(("good", "film"))), tagged)
    assert_close(tagger.predict("good film"), tagged)


def test_inputs_the_model_does_not_accept_are_errors():
    for kind, given, problem in [
        (REVIEWS, 7, "a text must be a string, a pair of strings, or a record with a 'text', got 7"),
        (REVIEWS, {"txt": "film", "id": 1}, "the record must have 'text', has only txt, id"),
        (REVIEWS, {"text": 3}, "'text' of the record must be a text, got 3"),
        (REVIEWS, Question("a", "b"), "the model requires a text, got Question"),
        (Spans(), "film", "the model requires a question and a context, got 'film'"),
        (Spans(), {"question": "film"}, "the record must have 'context'"),
        (Tokens(("O", "X")), {"words": "good film"}, "'words' of the record must be a list of words"),
    ]:
        with pytest.raises(InputError, match=problem):
            Predictor(tiny_model(kind)).predict([given])


class Stubbed(Predictor):
    """Predicts each text as itself and records the batch sizes."""

    def __init__(self, **settings) -> None:
        super().__init__(tiny_model(REVIEWS), **settings)
        self.sizes = []

    def _predictions(self, kind, runtime, examples):
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


def test_with_a_chunk_of_one_each_text_is_predicted_at_once():
    predictor, question_entry = Stubbed(chunk=1), []
    answers = predictor.stream(question_entry.append(text) or text for text in ("a", "b", "c"))
    assert [(next(answers)["label"], list(question_entry)) for _ in range(2)] == [("a", ["a"]), ("b", ["a", "b"])]


def test_truncated_texts_are_counted_and_windows_are_not():
    predictor = Predictor(tiny_model(REVIEWS))
    predictor.predict(["good " * 14, "good " * 15, "bad " * 99])
    assert predictor.cut == 2
    short = Predictor(tiny_model(REVIEWS), length=4)
    assert_close(short.predict("good film bad bad"), predictor.predict("good film"))
    assert short.cut == 1
    tagger = Predictor(tiny_model(Tokens(("O", "B-X"))))
    assert len(tagger.predict("good " * 40)["tags"]) == 40
    assert tagger.cut == 0


def test_inputs_that_are_not_texts_are_errors():
    for given in [None, 5, b"film"]:
        with pytest.raises(InputError, match=f"texts must be a string or a list of strings, got {given!r}"):
            Predictor(tiny_model(REVIEWS)).predict(given)


def test_a_loaded_model_predicts_and_a_built_one_requires_a_head(tmp_path):
    write_tiny_model(tmp_path / "model", REVIEWS)
    model = lightbert.load(tmp_path / "model")
    assert model.predict("good film")["label"] in ("bad", "good")
    assert len(model.predict(["good film", ("bad", "film")], batch=2)) == 2
    assert model.state_dict().keys() == tiny_model(REVIEWS).state_dict().keys()
    lightbert.save(model, tmp_path / "again")
    assert_close(lightbert.load(tmp_path / "again").predict("good film"), model.predict("good film"))
    built = lightbert.build("convbert-tiny")
    with pytest.raises(InputError, match=r"the model has no tokenizer: .* set model\.tokenizer"):
        built.predict("good film")
    built.tokenizer = model.tokenizer
    with pytest.raises(InputError, match="has no head for a task: fine-tune it first"):
        built.predict("good film")


def test_a_built_model_predicts_with_a_tokenizer():
    model = lightbert.build("convbert-tiny", heads={"classify": {"labels": 2}}).eval()
    model.tokenizer = small_tokenizer()
    assert model.predict("good film")["label"] in ("LABEL_0", "LABEL_1")


def test_another_runtime_can_compute_the_outputs():
    model = tiny_model(REVIEWS)
    expected = Predictor(model).predict(["good film", "a bad film was the film"])
    inference = Inference(model, "classify")

    class Elsewhere:
        """Computes what the model would, outside of it: all that a predictor asks of an exported file."""

        head, reads_padding, batch_tokens, chunk = "classify", False, (256, 4096), 1024
        calls = 0

        def running(self):
            return torch.inference_mode()

        def submit(self, ids, mask, segments):
            self.calls += 1
            tensors = (None if each is None else torch.from_numpy(each) for each in (ids, mask, segments))
            (logits,) = inference(*tensors)
            return lambda: (logits.numpy(),)

    runtime, empty = Elsewhere(), tiny_model(REVIEWS).to("meta")
    given = Predictor(empty, device=None, runtime=runtime).predict(["good film", "a bad film was the film"])
    assert runtime.calls
    assert_close(given, expected)


def test_training_mode_is_restored_after_prediction():
    model = tiny_model(REVIEWS).train()
    one, other = (Predictor(model).predict("good film") for _ in range(2))
    assert one == other
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_too_large_length_and_a_negative_batch_are_errors():
    with pytest.raises(InputError, match="length must be <= 16, the positions of the model, got 17"):
        Predictor(tiny_model(REVIEWS), length=17)
    with pytest.raises(InputError, match="batch must be >= 0, got -1"):
        Predictor(tiny_model(REVIEWS), batch=-1)


def test_outputs_have_no_padding_in_them():
    for head in ["tokens", "span", "beam"]:
        settings = {"tokens": {"labels": 3}, "span": {}, "beam": {"inner": 8, "beam": 6}}[head]
        model = tiny_model(None, head, **settings)
        rows = [[2, 5, 3, 6, 7, 3], [2, 5, 3, 6, 6, 6, 7, 8, 9, 3]]
        outputs = run(TorchRuntime(Inference(model, head)), Features.of(rows, [3, 3]), Specials(0, 2, 3, 4))
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
    ((logits,),) = run(TorchRuntime(Inference(model, "classify")), Features.of([[2, 5, 3]], [3]), Specials(0, 2, 3, 4))
    assert logits.dtype == np.float32
    assert logits.shape == (2,)
