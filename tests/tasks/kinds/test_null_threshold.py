"""The null threshold above which a question is left unanswered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import encoder

from lightbert.errors import InputError
from lightbert.tasks.example import Answer, Question
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.metrics import best_threshold, score_2_0

CONTEXT = "the black cat sat"
TRUTHS = {"cat": (Answer("cat", 10),), "black cat": (Answer("black cat", 4),), "": ()}


def question(truth):
    return Question("Who?", CONTEXT, TRUTHS[truth])


def predicted(answer, null_score):
    return {"answer": answer, "null_score": null_score, "n_best": [{"answer": answer}] if answer else []}


def f1_at(threshold, questions, predictions):
    truths = [(str(at), [answer.text for answer in each.answers]) for at, each in enumerate(questions)]
    said = {str(at): "" if p["null_score"] > threshold else p["answer"] for at, p in enumerate(predictions)}
    return score_2_0(truths, said)["f1"]


def test_the_best_threshold_matches_a_worked_example():
    questions = [question("cat"), question(""), question("black cat"), question("")]
    predictions = [predicted("cat", -3.0), predicted("cat", 2.0), predicted("cat", 0.5), predicted("sat", 0.7)]
    assert best_threshold(questions, predictions) == 0.5


@given(
    st.lists(
        st.tuples(st.sampled_from(list(TRUTHS)), st.sampled_from(["cat", "sat", ""]), st.integers(-3, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_no_threshold_gives_a_higher_f1(cases):
    questions = [question(truth) for truth, _, _ in cases]
    predictions = [predicted(answer, float(null)) for _, answer, null in cases]
    chosen = f1_at(best_threshold(questions, predictions), questions, predictions)
    assert chosen == pytest.approx(max(f1_at(at / 2, questions, predictions) for at in range(-9, 9)))


def test_if_every_answer_lowers_f1_all_answers_are_empty():
    questions, predictions = [question(""), question("")], [predicted("cat", -4.0), predicted("cat", 0.0)]
    assert best_threshold(questions, predictions) < -4.0


def test_the_chosen_threshold_is_stored_in_the_description():
    before = Spans("beam", null_threshold=-2.75)
    kind = before.tune([question("cat"), question("")], [predicted("cat", 1.5), predicted("cat", 2.0)])
    assert kind.description()["null_threshold"] == 1.5
    assert before.tune([question("cat")], [predicted("cat", 1.5)]) == before


def test_choosing_a_threshold_requires_answers():
    with pytest.raises(InputError, match="requires at least one question"):
        best_threshold([], [])
    with pytest.raises(InputError, match="choosing a threshold requires answers, got none for 'q'"):
        best_threshold([Question("Who?", CONTEXT, None, "q")], [predicted("cat", 0.0)])


@pytest.mark.parametrize("answers", [((Answer("a", 0),), (Answer("b", 2),)), ((Answer("a", 0),), ())])
def test_the_names_of_the_metrics_are_known_without_a_model(answers):
    questions = [Question("?", "a b", each) for each in answers]
    kind = Spans()
    predictions = [{"answer": "a"}, {"answer": "b"}]
    train = kind.features(questions, encoder(length=80))
    assert kind.metric_names(train, questions) == tuple(kind.metrics(questions, predictions))
