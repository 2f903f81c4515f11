"""The numbers of SQuAD's own scripts, worked out by hand."""

import pytest
from questions import asked, document, write

from lightbert.errors import InputError
from lightbert.tasks.datasets.squad.answer_files import score
from lightbert.tasks.kinds.spans.comparison import exact, f1, normalized


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)
def test_normalization_by_hand(text, expected):
    assert normalized(text) == expected


def test_accents_are_not_removed():
    assert not exact("naive", "naïve")
    assert not exact("nai\u0308ve", "naïve")


@pytest.mark.parametrize(
    ("prediction", "truth", "expected"),
    [
        ("the cat", "Cat!", 1),
        ("black cat", "cat", 2 / 3),
        ("cat cat", "cat", 2 / 3),
        ("cat cat dog", "cat dog dog", 2 / 3),
        ("dog", "cat", 0),
        ("", "cat", 0),
        ("cat", "", 0),
    ],
)
def test_f1_by_hand(prediction, truth, expected):
    assert f1(prediction, truth, both_empty=0) == pytest.approx(expected)


def test_two_answers_without_a_word_agree_in_2_0_only():
    assert (f1("the", "", both_empty=0), f1("the", "", both_empty=1)) == (0, 1)


@pytest.fixture
def judge(tmp_path):
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


def test_1_1_takes_the_best_of_several_answers(judge):
    data = first(asked("a", ("cat", 0), ("black cat", 0)), asked("b", ("Paris", 0), ("in Paris", 0)))
    assert judge(data, {"a": "The black cat.", "b": "at Paris"}) == {
        "exact_match": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3) / 2),
    }


def test_1_1_counts_a_missing_prediction_as_zero_and_says_so(judge, capsys):
    data = first(asked("a", ("cat", 0)), asked("b", ("dog", 0)))
    assert judge(data, {"a": "cat", "stranger": "x"}) == {"exact_match": 50.0, "f1": 50.0}
    captured = capsys.readouterr()
    assert captured.err == "1 of 2 questions have no prediction and count as 0: b\n"
    assert not captured.out


def test_1_1_gives_an_empty_answer_nothing(judge):
    assert judge(first(asked("a", ("cat", 0))), {"a": ""}) == {"exact_match": 0.0, "f1": 0.0}


def test_1_1_gives_an_article_for_an_article_a_match_without_f1(judge):
    assert judge(first(asked("a", ("the", 0))), {"a": "a"}) == {"exact_match": 100.0, "f1": 0.0}


def test_1_1_counts_an_id_as_often_as_it_comes(judge):
    data = first(asked("a", ("cat", 0)), asked("a", ("dog", 0)), asked("b", ("fox", 0)))
    found = judge(data, {"a": "cat", "b": "fox"})
    assert found["exact_match"] == pytest.approx(200 / 3)


def test_2_0_counts_an_id_once_with_its_last_answers(judge):
    data = second(asked("a", ("cat", 0)), asked("a", ("dog", 0)), asked("b", ("fox", 0)))
    found = judge(data, {"a": "cat", "b": "fox"})
    assert (found["exact"], found["total"]) == (50.0, 2)


def test_2_0_tells_answerable_and_unanswerable_apart(judge):
    data = second(asked("a", ("cat", 0)), asked("b", ("black cat", 0)), asked("c"), asked("d"))
    found = judge(data, {"a": "the cat", "b": "cat", "c": "", "d": "dog"})
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


def test_2_0_ignores_answers_that_are_nothing_but_articles_and_marks(judge):
    data = second(asked("a", ("the", 0), ("cat", 0)), asked("b", ("a.", 0)))
    found = judge(data, {"a": "an", "b": "..."})
    assert (found["exact"], found["f1"], found["HasAns_total"]) == (50.0, 50.0, 2)


def test_2_0_leaves_out_a_missing_prediction_and_says_so(judge, capsys):
    data = second(asked("a", ("cat", 0)), asked("b", ("dog", 0)), asked("c"))
    found = judge(data, {"a": "cat"})
    assert (found["exact"], found["total"], found["HasAns_total"]) == (100.0, 1, 1)
    assert "NoAns_total" not in found
    assert capsys.readouterr().err == "2 of 3 questions have no prediction and are left out: b, c\n"


def test_2_0_finds_the_best_thresholds(judge):
    data = second(asked("a", ("cat", 0)), asked("b", ("black cat", 0)), asked("c"), asked("d"))
    predictions = {"a": "cat", "b": "cat", "c": "fox", "d": ""}
    found = judge(data, predictions, {"a": 0.1, "b": 0.4, "c": 0.6, "d": 0.9})
    # Nothing answered: c and d are right. Then a gains 1, b its F1, c loses its point, d says nothing anyway.
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, 0.1)
    assert found["best_f1"] == pytest.approx(100 * (2 + 1 + 2 / 3) / 4)
    assert found["best_f1_thresh"] == 0.4
    assert (found["exact"], found["NoAns_exact"]) == (50.0, 50.0)


def test_2_0_takes_an_answer_above_the_threshold_for_none(judge):
    data = second(asked("a", ("cat", 0)), asked("b"))
    odds = {"a": 1, "b": 1.5}
    assert judge(data, {"a": "cat", "b": "dog"}, odds)["exact"] == 100.0
    assert judge(data, {"a": "cat", "b": "dog"}, odds, na_prob_threshold=0.5)["exact"] == 50.0


def test_without_a_version_the_impossible_questions_decide(judge):
    data = document("", asked("a", is_impossible=True), asked("b", ("cat", 0), is_impossible=False), version="")
    assert judge(data, {"a": "", "b": "cat"})["exact"] == 100.0


REFUSED = {
    "a prediction that is no text": (first(asked("a", ("cat", 0))), {"a": None}, None, "has None for the question 'a'"),
    "a list of predictions": (first(asked("a", ("cat", 0))), ["cat"], None, "holds no JSON object"),
    "an empty data file": (first(), {"a": "cat"}, None, "hold no question"),
    "a question without answers in 1.1": (first(asked("a")), {"a": "x"}, None, "'a' has no answer, which SQuAD 2.0"),
    "predictions for other data": (second(asked("a")), {"b": "x"}, None, "none of the predictions belongs"),
    "odds in 1.1": (first(asked("a", ("cat", 0))), {"a": "x"}, {"a": 0}, "is SQuAD 1.1, where every question"),
    "odds that are missing": (second(asked("a")), {"a": "x"}, {"b": 0}, "no number for the question 'a'"),
    "odds that are text": (second(asked("a")), {"a": "x"}, {"a": "0"}, "it must be a number"),
    "data without answers": (
        second({"id": "a"}),
        {"a": "x"},
        None,
        r"in '.*data\.json', data\[0\]\.paragraphs\[0\]\.qas\[0\] has no list 'answers'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_judged_is_refused_in_a_sentence(judge, case):
    data, predictions, odds, sentence = REFUSED[case]
    with pytest.raises(InputError, match=sentence):
        judge(data, predictions, odds)
