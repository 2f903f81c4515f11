"""Decoding of logits to answers: exact characters, valid spans, several windows."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from questions import TOKENIZERS, answers, encoder, perfect_outputs

import lightbert
from lightbert.nn.inference import Inference
from lightbert.tasks.example import Answer, Question
from lightbert.tasks.kinds import kind_of
from lightbert.tasks.kinds.spans import Spans, char_span, owning_windows, search_spans, split_windows, token_span
from lightbert.tasks.predict.runtime import run
from lightbert.tasks.predict.torch_runtime import TorchRuntime

LENGTH, STRIDE, MAX_QUERY = 28, 6, 6
# The window that owns the first token of an answer always has room for this many tokens.
FITTING = (LENGTH - MAX_QUERY - 3 - 1 - STRIDE) // 2

WORDS = st.sampled_from(
    [
        "The",
        "cat,",
        "dog",
        "mats",
        "cafe\u0301",
        "café",
        "naïve",
        "東京",
        "½",
        "ﬁne",
        "x\u200d",
        "(12)",
        "…",
        "\u00a0",
        "\n",
    ]
)
CONTEXTS = st.lists(WORDS | st.text(max_size=4), max_size=40).map(" ".join)


def kind(head="span", **changes):
    return Spans(head, STRIDE, MAX_QUERY, **{"max_answer": 8, "n_best": 4} | changes)


def drawn_outputs(features, head, seed, starts=6):
    rng = np.random.default_rng(seed)
    outputs = []
    for length in features.lengths.tolist():
        if head == "span":
            outputs.append(tuple(rng.normal(0, 3, (2, length)).astype(np.float32)))
        else:
            pair = rng.integers(0, length, (2, starts * 3))
            outputs.append((*pair, rng.normal(0, 3, starts * 3).astype(np.float32), np.float32(rng.normal())))
    return outputs


@settings(max_examples=30)
@given(
    contexts=st.lists(CONTEXTS, min_size=1, max_size=3), seed=st.integers(0, 99), threshold=st.sampled_from([None, 0.0])
)
def test_every_answer_is_the_context_at_its_offsets(contexts, seed, threshold):
    for name in TOKENIZERS:
        for head in ["span", "beam"]:
            spans = kind(head, null_threshold=threshold)
            questions = [Question("Who sat?", context) for context in contexts]
            features = spans.features(questions, encoder(LENGTH, name))
            predictions = spans.predictions(questions, features, drawn_outputs(features, head, seed))
            assert len(predictions) == len(questions)
            for question, prediction in zip(questions, predictions, strict=True):
                for each in prediction["n_best"]:
                    assert each["answer"] == question.context[each["start"] : each["end"]]
                    assert each["answer"] == each["answer"].strip() != ""
                texts = [each["answer"] for each in prediction["n_best"]]
                assert len(set(texts)) == len(texts) <= 4
                scores = [each["score"] for each in prediction["n_best"]]
                assert scores == sorted(scores, reverse=True)
                if prediction["start"] is None:
                    assert prediction["answer"] == ""
                    assert prediction["end"] is None
                else:
                    assert prediction["answer"] == question.context[prediction["start"] : prediction["end"]] == texts[0]


@settings(max_examples=30)
@given(data=st.data())
def test_perfect_logits_give_the_exact_characters_of_the_answer(data):
    for name in TOKENIZERS:
        for head in ["span", "beam"]:
            context = data.draw(CONTEXTS)
            using = encoder(LENGTH, name)
            offsets = np.array(using.pieces([context])[0].offsets, dtype=np.int32).reshape(-1, 2)
            assume(len(offsets))
            first = data.draw(st.integers(0, len(offsets) - 1))
            last = data.draw(st.integers(first, min(first + FITTING - 1, len(offsets) - 1)))
            start, end = char_span(context, offsets, first, last)
            # Two pieces may cover one character; a span inside it can't be expressed in tokens.
            assume(start < end and char_span(context, offsets, *token_span(offsets, start, end)) == (start, end))
            question = Question("Who sat?", context, (Answer(context[start:end], start),))
            spans = kind(head, max_answer=LENGTH)
            features = spans.features([question], using)
            predictions = spans.predictions([question], features, perfect_outputs(features, head))
            assert answers(predictions) == [context[start:end]]
            assert spans.metrics([question], predictions)["exact_match"] == 1


@given(count=st.integers(1, 30), room=st.integers(2, 12), stride=st.integers(1, 12), token=st.integers(0, 29))
def test_a_token_belongs_to_the_window_with_most_context(count, room, stride, token):
    windows = list(split_windows(count, room, stride))
    token %= count
    seen = {
        number: min(token - first, first + size - 1 - token) + 0.01 * size
        for number, (first, size) in enumerate(windows)
        if first <= token < first + size
    }
    firsts, sizes = np.array(windows).T
    assert owning_windows(firsts, sizes)[token] == max(seen, key=seen.__getitem__)


@given(seed=st.integers(0, 99), count=st.integers(0, 12), max_answer=st.integers(1, 6))
def test_the_search_finds_the_best_spans_of_all(seed, count, max_answer):
    rng = np.random.default_rng(seed)
    start, end = rng.normal(size=(2, count))
    own = rng.random(count) < 0.7
    every = {(i, j): start[i] + end[j] for i in range(count) for j in range(i, min(i + max_answer, count)) if own[i]}
    first, last, score = search_spans(start, end, own, max_answer, 5)
    found = dict(zip(zip(first.tolist(), last.tolist(), strict=True), score.tolist(), strict=True))
    assert found == {pair: every[pair] for pair in sorted(every, key=every.__getitem__)[-5:]}


def single(head="span", context="The cat sat on the mat.", **changes):
    """One question, its features with one window, and where its context begins."""
    spans = Spans(head, max_query=8, **changes)
    question = Question("Who?", context, ())
    features = spans.features([question], encoder(64))
    return spans, question, features, int(features.seconds[0])


def test_probabilities_and_null_score_match_a_worked_example():
    spans, question, features, second = single(null_threshold=0.0)
    start, end = np.full((2, features.lengths[0]), -50.0)
    start[second + 1], end[second + 1], start[second + 5], end[second + 5] = 2.0, 1.0, 1.0, 1.0
    start[0], end[0] = 0.5, 0.5
    (found,) = spans.predictions([question], features, [(start, end)])
    # Three candidates count: "cat" with 3, "mat" with 2, "cat sat on the mat" with 3; the null answer has 1.
    total = 2 * np.exp(3) + np.exp(2) + np.exp(1)
    assert [each["answer"] for each in found["n_best"][:3]] == ["cat", "cat sat on the mat", "mat"]
    assert found["answer"] == "cat"
    assert found["null_score"] == pytest.approx(-2.0)
    assert found["probability"] == pytest.approx(np.exp(3) / total)
    assert found["n_best"][2]["probability"] == pytest.approx(np.exp(2) / total)


def test_a_null_score_above_the_threshold_means_no_answer():
    for threshold, answer in [(None, "cat"), (1.0, "cat"), (0.99, ""), (-2.75, "")]:
        spans, question, features, second = single("beam", null_threshold=threshold)
        at = np.array([second + 1])
        (found,) = spans.predictions([question], features, [(at, at, np.array([-0.1]), np.float32(1.0))])
        assert found["answer"] == answer
        assert found["null_score"] == 1.0
        probability = 1 / (1 + np.exp(-1)) if threshold is not None else 0.0
        assert found["probability"] == pytest.approx(1 - probability if answer else probability)
        assert found["n_best"][0]["answer"] == "cat"


def test_the_null_score_is_the_minimum_over_the_windows():
    spans = kind("beam", null_threshold=0.0)
    question = Question("Who?", "The cat sat on the mat. " * 9)
    features = spans.features([question], encoder(LENGTH))
    outputs = [(np.array([0]), np.array([0]), np.array([0.0]), np.float32(3 - row)) for row in range(len(features))]
    (found,) = spans.predictions([question], features, outputs)
    assert len(features) > 3
    # The only candidate is [CLS], which isn't a valid answer.
    assert (found["answer"], found["n_best"]) == ("", [])
    at = features.seconds[0] + 1
    outputs[0] = (np.array([at]), np.array([at]), np.array([0.0]), np.float32(3))
    (found,) = spans.predictions([question], features, outputs)
    assert found["null_score"] == 3 - (len(features) - 1)


def test_candidates_that_are_backwards_too_long_or_outside_are_dropped():
    spans, question, features, second = single("beam", max_answer=2)
    start = second + np.array([3, 0, -1, 0, 1])
    end = second + np.array([2, 2, 1, 99, 2])
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    (found,) = spans.predictions([question], features, [(start, end, scores, np.float32(0))])
    assert [each["answer"] for each in found["n_best"]] == ["cat sat"]


def test_an_empty_context_has_no_answer():
    for head in ("span", "beam"):
        spans, question, features, _ = single(head, context=" ")
        (found,) = spans.predictions([question], features, drawn_outputs(features, head, 0))
        assert (found["answer"], found["start"], found["probability"], found["n_best"]) == ("", None, 1.0, [])
        assert np.isfinite(found["null_score"])


def test_a_description_restores_the_same_kind():
    spans = kind("beam", null_threshold=-1.25)
    assert kind_of({**spans.description(), "task": "squad2", "length": 384}) == spans
    assert (spans.head, spans.head_settings()) == ("beam", {})


@pytest.mark.parametrize("head", ["span", "beam"])
def test_outputs_of_a_real_head_decode_to_answers(head):
    model = lightbert.build("bert-tiny", heads={head: {}})
    spans = kind(head, null_threshold=100.0)
    questions = [Question("Who?", "The cat sat on the mat. " * times) for times in (9, 1, 4)]
    using = encoder(LENGTH)
    features = spans.features(questions, using)
    outputs = run(TorchRuntime(Inference(model, head)), features, using.specials)
    predictions = spans.predictions(questions, features, outputs)
    assert len(features) > len(questions)
    for question, prediction in zip(questions, predictions, strict=True):
        assert prediction["answer"] == question.context[prediction["start"] : prediction["end"]] != ""
        assert 0 < prediction["probability"] < 1
