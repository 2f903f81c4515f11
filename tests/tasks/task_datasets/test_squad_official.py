"""The scores of SQuAD's official scripts, against worked examples."""

import pytest
from questions import document, question_entry, write

from lightbert.errors import InputError
from lightbert.tasks.datasets.squad import score
from lightbert.tasks.metrics import answer_exact, answer_f1, normalize_answer


def test_normalization_matches_worked_examples():
    for text, expected in [
        ("The  Cat\tin THE hat", "cat in hat"),
        ("an apple, a pear", "apple pear"),
        ("another theory", "another theory"),
        ("(1895–1943).", "1895–1943"),
        ("x-ray", "xray"),
        ("$5.00", "500"),
        ("Don't", "dont"),
        ("the_cat", "thecat"),
        ("a.", ""),
        ("", ""),
        ("\u00a0Élan\u3000vital ", "élan vital"),
        ("naïve", "naïve"),
        ("ΑΣ", "ας"),
        ("«the» end", "« » end"),
    ]:
        assert normalize_answer(text) == expected


def test_accents_are_not_removed():
    assert not answer_exact("naive", "naïve")
    assert not answer_exact("nai\u0308ve", "naïve")


def test_f1_matches_worked_examples():
    for prediction, truth, expected in [
        ("the cat", "Cat!", 1),
        ("black cat", "cat", 2 / 3),
        ("cat cat", "cat", 2 / 3),
        ("cat cat dog", "cat dog dog", 2 / 3),
        ("dog", "cat", 0),
        ("", "cat", 0),
        ("cat", "", 0),
    ]:
        assert answer_f1(prediction, truth, both_empty=0) == pytest.approx(expected)


def test_two_empty_answers_match_in_2_0_only():
    assert (answer_f1("the", "", both_empty=0), answer_f1("the", "", both_empty=1)) == (0, 1)


@pytest.fixture
def score_files(tmp_path):
    def run(data, predictions, na_probs=None, **options):
        paths = [write(tmp_path / "data.json", data), write(tmp_path / "predictions.json", predictions)]
        if na_probs is not None:
            paths.append(write(tmp_path / "na.json", na_probs))
        return score(*paths, **options)

    return run


def first(*entries):
    return document("no answer is looked up here", *entries)


def second(*entries):
    return document("no answer is looked up here", *entries, version="v2.0")


def test_1_1_takes_the_best_of_several_answers(score_files):
    data = first(question_entry("a", ("cat", 0), ("black cat", 0)), question_entry("b", ("Paris", 0), ("in Paris", 0)))
    assert score_files(data, {"a": "The black cat.", "b": "at Paris"}) == {
        "exact_match": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3) / 2),
    }


def test_a_missing_prediction_scores_zero_with_a_warning_in_1_1(score_files, capsys):
    data = first(question_entry("a", ("cat", 0)), question_entry("b", ("dog", 0)))
    assert score_files(data, {"a": "cat", "stranger": "x"}) == {"exact_match": 50.0, "f1": 50.0}
    captured = capsys.readouterr()
    assert captured.err == "1 of 2 questions have no prediction and score 0: b\n"
    assert not captured.out


def test_an_empty_answer_scores_zero_in_1_1(score_files):
    assert score_files(first(question_entry("a", ("cat", 0))), {"a": ""}) == {"exact_match": 0.0, "f1": 0.0}


def test_1_1_gives_an_article_for_an_article_a_match_without_f1(score_files):
    assert score_files(first(question_entry("a", ("the", 0))), {"a": "a"}) == {"exact_match": 100.0, "f1": 0.0}


def test_repeated_ids_are_counted_each_time_in_1_1(score_files):
    data = first(question_entry("a", ("cat", 0)), question_entry("a", ("dog", 0)), question_entry("b", ("fox", 0)))
    found = score_files(data, {"a": "cat", "b": "fox"})
    assert found["exact_match"] == pytest.approx(200 / 3)


def test_repeated_ids_are_counted_once_in_2_0(score_files):
    data = second(question_entry("a", ("cat", 0)), question_entry("a", ("dog", 0)), question_entry("b", ("fox", 0)))
    found = score_files(data, {"a": "cat", "b": "fox"})
    assert (found["exact"], found["total"]) == (50.0, 2)


def test_answerable_and_unanswerable_questions_are_scored_separately_in_2_0(score_files):
    data = second(
        question_entry("a", ("cat", 0)), question_entry("b", ("black cat", 0)), question_entry("c"), question_entry("d")
    )
    found = score_files(data, {"a": "the cat", "b": "cat", "c": "", "d": "dog"})
    assert found == {
        "exact": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 1) / 4),
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": pytest.approx(100 * (1 + 2 / 3) / 2),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert list(found)[:3] == ["exact", "f1", "total"]


def test_answers_of_articles_and_punctuation_are_ignored_in_2_0(score_files):
    data = second(question_entry("a", ("the", 0), ("cat", 0)), question_entry("b", ("a.", 0)))
    found = score_files(data, {"a": "an", "b": "..."})
    assert (found["exact"], found["f1"], found["HasAns_total"]) == (50.0, 50.0, 2)


def test_a_missing_prediction_is_left_out_with_a_warning_in_2_0(score_files, capsys):
    data = second(question_entry("a", ("cat", 0)), question_entry("b", ("dog", 0)), question_entry("c"))
    found = score_files(data, {"a": "cat"})
    assert (found["exact"], found["total"], found["HasAns_total"]) == (100.0, 1, 1)
    assert "NoAns_total" not in found
    assert capsys.readouterr().err == "2 of 3 questions have no prediction and are left out: b, c\n"


def test_2_0_finds_the_best_thresholds(score_files):
    data = second(
        question_entry("a", ("cat", 0)), question_entry("b", ("black cat", 0)), question_entry("c"), question_entry("d")
    )
    predictions = {"a": "cat", "b": "cat", "c": "fox", "d": ""}
    found = score_files(data, predictions, {"a": 0.1, "b": 0.4, "c": 0.6, "d": 0.9})
    # With all answers empty, c and d are right. Then a gains 1, b gains its F1, c loses 1, and d stays empty.
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, 0.1)
    assert found["best_f1"] == pytest.approx(100 * (2 + 1 + 2 / 3) / 4)
    assert found["best_f1_thresh"] == 0.4
    assert (found["exact"], found["NoAns_exact"]) == (50.0, 50.0)


def test_an_answer_above_the_threshold_counts_as_empty_in_2_0(score_files):
    data = second(question_entry("a", ("cat", 0)), question_entry("b"))
    odds = {"a": 1, "b": 1.5}
    assert score_files(data, {"a": "cat", "b": "dog"}, odds)["exact"] == 100.0
    assert score_files(data, {"a": "cat", "b": "dog"}, odds, na_prob_threshold=0.5)["exact"] == 50.0


def test_without_a_version_the_field_is_impossible_decides(score_files):
    data = document(
        "", question_entry("a", is_impossible=True), question_entry("b", ("cat", 0), is_impossible=False), version=""
    )
    assert score_files(data, {"a": "", "b": "cat"})["exact"] == 100.0


INVALID = {
    "a prediction that is not a text": (
        first(question_entry("a", ("cat", 0))),
        {"a": None},
        None,
        "must have a text for every question, got None for 'a'",
    ),
    "a list of predictions": (first(question_entry("a", ("cat", 0))), ["cat"], None, "is not a JSON object"),
    "an empty data file": (first(), {"a": "cat"}, None, "must contain at least one question"),
    "a question without answers in 1.1": (
        first(question_entry("a")),
        {"a": "x"},
        None,
        "every question of SQuAD 1.1 must have an answer, got none for 'a'",
    ),
    "predictions for other data": (
        second(question_entry("a")),
        {"b": "x"},
        None,
        "must share question ids with the data",
    ),
    "odds in 1.1": (
        first(question_entry("a", ("cat", 0))),
        {"a": "x"},
        {"a": 0},
        "no-answer scores require SQuAD 2.0, got SQuAD 1.1",
    ),
    "odds that are missing": (
        second(question_entry("a")),
        {"a": "x"},
        {"b": 0},
        "must have a number for every prediction, got none for the question 'a'",
    ),
    "odds that are text": (
        second(question_entry("a")),
        {"a": "x"},
        {"a": "0"},
        "must have a number for every question, got '0' for 'a'",
    ),
    "data without answers": (
        second({"id": "a"}),
        {"a": "x"},
        None,
        r"in '.*data\.json', data\[0\]\.paragraphs\[0\]\.qas\[0\] must have a list 'answers'",
    ),
}


def test_invalid_scoring_input_is_a_one_line_error(score_files):
    for case in INVALID:
        data, predictions, odds, sentence = INVALID[case]
        with pytest.raises(InputError, match=sentence):
            score_files(data, predictions, odds)
