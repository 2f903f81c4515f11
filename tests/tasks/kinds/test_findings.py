"""Error analysis, against worked examples."""

import pytest

from extras import needs_metrics
from lightbert.tasks.example import Answer, Example, Question, TaggedSentence
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.kind import Table, format_cell
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans, question_word
from lightbert.tasks.kinds.tokens import Tokens

pytestmark = needs_metrics


def found(kind, examples, predictions, worst=20):
    return {each.key: each for each in kind.findings(examples, predictions, worst)}


def classified(no, yes):
    label = "no" if no > yes else "yes"
    return {"label": label, "probability": max(no, yes), "probabilities": {"no": no, "yes": yes}}


@pytest.fixture
def label_findings():
    """Two correct and two wrong predictions, the second more confident."""
    examples = [
        Example(text, label=label, id=text) for text, label in zip("abcd", ("no", "yes", "yes", "yes"), strict=True)
    ]
    predictions = [classified(0.9, 0.1), classified(0.2, 0.8), classified(0.6, 0.4), classified(1.0, 0.0)]
    return found(Classify(("no", "yes")), examples, predictions)


def test_the_confusion_matrix_has_a_row_for_each_true_label(label_findings):
    assert label_findings["confusion"].value == {"labels": ["no", "yes"], "counts": [[1, 0], [2, 1]]}
    assert label_findings["confusion"].tables[0].rows == [("no", 1, 0), ("yes", 2, 1)]


def test_each_label_has_its_own_precision_recall_and_f1(label_findings):
    no, yes = label_findings["labels"].value["no"], label_findings["labels"].value["yes"]
    assert (no["precision"], no["recall"], no["f1"]) == (1 / 3, 1.0, 0.5)
    assert (yes["precision"], yes["recall"], yes["f1"]) == (1.0, 1 / 3, 0.5)


def test_calibration_and_brier_score_match_a_worked_example(label_findings):
    value = label_findings["calibration"].value
    # Each confidence is in a separate bin: the differences are 0.1, 0.2, 0.6 and 1.
    assert value["error"] == pytest.approx((0.1 + 0.2 + 0.6 + 1.0) / 4)
    assert value["brier"] == pytest.approx((2 * 0.01 + 2 * 0.04 + 2 * 0.36 + 2 * 1.0) / 4)
    assert sum(each["count"] for each in value["bins"]) == 4
    assert "Brier score 0.7050" in label_findings["calibration"].tables[0].note


def test_the_most_confident_error_comes_first(label_findings):
    assert [each["id"] for each in label_findings["most_wrong"].value] == ["d", "c"]
    assert label_findings["most_wrong"].value[0]["predicted"] == "no"


def test_at_most_the_requested_number_of_errors_is_kept():
    examples = [Example("a", label="yes"), Example("b", label="yes")]
    result = found(Classify(("no", "yes")), examples, [classified(0.9, 0.1)] * 2, worst=1)
    assert len(result["most_wrong"].value) == 1


def test_a_wide_confusion_matrix_becomes_a_list_of_confused_pairs():
    labels = tuple(f"label {number}" for number in range(30))
    examples = [Example("a", label=labels[0]), Example("b", label=labels[0]), Example("c", label=labels[2])]
    said = {"label": labels[1], "probability": 1.0, "probabilities": dict.fromkeys(labels, 0.0) | {labels[1]: 1.0}}
    result = found(Classify(labels), examples, [said] * 3)
    assert result["confusion"].tables[0].rows == [(labels[0], labels[1], 2), (labels[2], labels[1], 1)]
    assert len(result["confusion"].value["counts"]) == 30


def test_each_label_of_a_multilabel_example_is_one_decision():
    examples = [Example("a", label=("x",)), Example("b", label=("x", "y")), Example("c", label=())]
    predictions = [
        {"labels": ["x"], "probabilities": {"x": 0.9, "y": 0.2}},
        {"labels": ["x"], "probabilities": {"x": 0.7, "y": 0.1}},
        {"labels": ["x"], "probabilities": {"x": 0.6, "y": 0.4}},
    ]
    result = found(Labels(("x", "y")), examples, predictions)
    x, y = result["labels"].value["x"], result["labels"].value["y"]
    assert (x["precision"], x["recall"], x["said"], x["true"]) == (2 / 3, 1.0, 3, 2)
    assert (y["precision"], y["recall"], y["f1"]) == (0.0, 0.0, 0.0)
    squares = [0.1**2, 0.2**2, 0.3**2, 0.9**2, 0.6**2, 0.4**2]
    assert result["calibration"].value["brier"] == pytest.approx(sum(squares) / 6)
    worst = [(each["text"], each["label"], each["true"]) for each in result["most_wrong"].value]
    assert worst == [("b", "y", True), ("c", "x", False)]


def test_regression_errors_are_sorted_and_grouped_by_true_value():
    examples = [Example("a", label=0.0), Example("b", "and c", label=5.0), Example("d", label=2.5)]
    result = found(Regress(0, 5), examples, [{"score": 1.0}, {"score": 2.0}, {"score": 2.5}])
    errors = result["errors"].value
    assert errors["mean"] == pytest.approx(-2 / 3)
    assert errors["mean_absolute"] == pytest.approx(4 / 3)
    assert errors["root_mean_square"] == pytest.approx((10 / 3) ** 0.5)
    assert errors["largest"] == 3.0
    assert [each["text"] for each in result["most_wrong"].value] == ["b", "a", "d"]
    assert result["most_wrong"].value[0]["text_b"] == "and c"
    assert [(each["count"], each["true"], each["predicted"]) for each in result["ranges"].value] == [
        (1, 0.0, 1.0),
        (1, 2.5, 2.5),
        (1, 5.0, 2.0),
    ]


def test_constant_numbers_have_one_range():
    result = found(Regress(0, 5), [Example("a", label=1.0), Example("b", label=1.0)], [{"score": 2.0}] * 2)
    assert [each["count"] for each in result["ranges"].value] == [2]


def tagged(*tags):
    return {"tags": [{"tag": tag, "probability": 0.5 + place / 10} for place, tag in enumerate(tags)], "spans": []}


def test_entities_are_counted_by_type_and_errors_shown_in_context():
    sentences = [
        TaggedSentence(("Ada", "Lovelace", "saw", "Rome"), ("B-PER", "I-PER", "O", "B-LOC")),
        TaggedSentence(("Rome", "won"), ("B-ORG", "O")),
    ]
    predictions = [tagged("B-PER", "I-PER", "O", "O"), tagged("B-LOC", "O")]
    result = found(Tokens(("O", "B-PER", "I-PER", "B-LOC", "B-ORG")), sentences, predictions)
    types = result["types"].value
    assert {name: (each["right"], each["said"], each["true"]) for name, each in types.items()} == {
        "PER": (1, 1, 1),
        "LOC": (0, 1, 1),
        "ORG": (0, 0, 1),
    }
    assert {"true": "B-LOC", "predicted": "O", "count": 1} in result["confusion"].value
    assert [(each["word"], each["predicted"]) for each in result["most_wrong"].value] == [
        ("Rome", "O"),
        ("Rome", "B-LOC"),
    ]
    assert result["most_wrong"].value[0]["around"] == "Ada Lovelace saw Rome"


def test_tags_without_entities_are_counted_by_tag():
    result = found(Tokens(("NOUN", "VERB")), [TaggedSentence(("a", "b"), ("NOUN", "VERB"))], [tagged("NOUN", "NOUN")])
    assert result["tags"].value["NOUN"]["precision"] == 0.5
    assert "types" not in result


def answered(answer, probability):
    return {"answer": answer, "probability": probability}


def test_answers_are_broken_down_and_the_most_confident_error_comes_first():
    def question(text, *answers):
        return Question(text, "the context", tuple(Answer(answer, 0) for answer in answers), id=text)

    questions = [
        question("Who wrote it?", "Ada Lovelace", "Lovelace"),
        question("Who paid?", "the king"),
        question("In what year?"),
        question("When?", "1842 or so"),
    ]
    predictions = [
        answered("Lovelace", 0.9),
        answered("a queen", 0.4),
        answered("1850", 0.8),
        answered("1842", 0.7),
    ]
    result = found(Spans(), questions, predictions)
    assert result["answerable"].value["no"] == {"count": 1, "exact_match": 0.0, "f1": 0.0, "answered": 1}
    assert result["answerable"].value["yes"]["exact_match"] == 1 / 3
    assert result["answerable"].value["yes"]["f1"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert {name: each["count"] for name, each in result["question_words"].value.items()} == {
        "who": 2,
        "what": 1,
        "when": 1,
    }
    assert [each["id"] for each in result["most_wrong"].value] == ["In what year?", "Who paid?", "When?"]


def test_questions_are_grouped_by_question_word():
    for question, word in [
        ("How many were there?", "how many"),
        ("Since when?", "when"),
        ("Name the king.", "other"),
        ("WHOSE?", "whose"),
    ]:
        assert question_word(Question(question, "")) == word


def test_markdown_cells_are_escaped():
    table = Table("Title", ("text", "count"), [("a | b\nc <b>", 1234), ("x" * 1000, None)])
    lines = table.to_markdown().splitlines()
    assert lines[4] == "| a \\| b c &lt;b> | 1,234 |"
    assert len(lines[5]) < 300
    assert lines[3] == "| --- | ---: |"


def test_an_empty_table_says_so():
    assert Table("Most wrong", ("text", "count"), [], note="The worst.").to_markdown() == "## Most wrong\n\nNone."


def test_numbers_are_formatted_briefly():
    assert [format_cell(0.12345), format_cell(1234567), format_cell(None)] == ["0.1235", "1,234,567", ""]
