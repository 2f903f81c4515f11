"""Every GLUE task in the layout of its original files."""

from pathlib import Path

import pytest
from glue_files import table, write_glue

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue import TABLE, open_glue
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.regress import Regress

SHARED = Path(__file__).parents[4] / "shared" / "data" / "glue"


@pytest.fixture
def glue(tmp_path):
    return write_glue(tmp_path / "glue")


def read(folder, task, split):
    return open_glue(task, str(folder)).examples(split)


def test_cola_has_no_header_except_in_its_test_set(glue):
    assert read(glue, "cola", "train") == [
        Example("The kettle sings.", None, "acceptable", "0"),
        Example("Kettle the sing.", None, "unacceptable", "1"),
    ]
    assert read(glue, "cola", "test") == [
        Example("The lamp is lit.", None, None, "0"),
        Example("Lit lamp the is.", None, None, "1"),
    ]


def test_sentences_are_read_verbatim(glue):
    assert read(glue, "sst2", "train")[0] == Example("a lively , warm tale ", None, "positive", "0")
    assert read(glue, "sst2", "test") == [Example("a slow film", None, None, "0")]


def test_byte_order_marks_and_unbalanced_quotes_are_accepted(glue):
    assert read(glue, "mrpc", "train") == [
        Example('He called it "a start.', "A start, he called it.", "equivalent", "0"),
        Example("Rain fell.", '"Snow fell," she said.', "not_equivalent", "1"),
    ]
    assert read(glue, "mrpc", "test") == [Example("Shares rose.", "Shares fell.", None, "0")]


def test_scores_are_numbers(glue):
    assert read(glue, "stsb", "train") == [Example("A cat sleeps.", "A cat is asleep.", 4.8, "0")]
    assert read(glue, "stsb", "dev")[0].label == 0
    assert read(glue, "stsb", "test")[0].label is None


def test_a_question_may_be_empty_and_has_the_id_of_its_file(glue):
    first, second = read(glue, "qqp", "train")
    assert first == Example("How is tea made?", "How do I make tea?", "duplicate", "133273")
    assert (second.text_b, second.label) == ("", "not_duplicate")
    assert read(glue, "qqp", "test") == [Example("What is jazz?", "What is blues?", None, "0")]


def test_mnli_has_two_halves_and_many_columns(glue):
    for split, expected in [
        ("train", Example("Shops are open.", "Shops are shut.", "contradiction", "0")),
        ("dev", Example("He ran home.", "He moved.", "entailment", "0")),
        ("dev_mismatched", Example("She sang.", "She sang well.", "neutral", "0")),
        ("test", Example("It is late.", "It is early.", None, "0")),
        ("test_mismatched", Example("It is hot.", "It is cold.", None, "0")),
    ]:
        assert read(glue, "mnli", split) == [expected]


def test_mnli_with_four_columns_is_read_too(glue):
    header = ["index", "premise", "hypothesis", "gold_label"]
    text = table(header, ["0", "He ran home.", "He moved.", "entailment"])
    (glue / "MNLI" / "dev_matched.tsv").write_text(text, encoding="utf-8")
    assert read(glue, "mnli", "dev") == [Example("He ran home.", "He moved.", "entailment", "0")]


def test_the_other_tasks_use_the_label_names_of_glue(glue):
    assert [example.label for example in read(glue, "qnli", "dev")] == ["entailment", "not_entailment"]
    assert [example.label for example in read(glue, "rte", "dev")] == ["entailment", "not_entailment"]
    assert [example.label for example in read(glue, "wnli", "dev")] == ["entailment", "not_entailment"]
    assert read(glue, "ax", "test") == [Example("No cat sat.", "A cat sat.", None, "0")]


def test_the_diagnostic_set_with_labels_is_read_with_them(tmp_path):
    text = table(
        ["Logic", "Domain", "Premise", "Hypothesis", "Label"],
        ["", "News", "No cat sat.", "A cat sat.", "contradiction"],
    )
    (tmp_path / "diagnostic-full.tsv").write_text(text, encoding="utf-8")
    assert read(tmp_path, "ax", "test") == [Example("No cat sat.", "A cat sat.", "contradiction", "0")]


def test_a_task_has_a_kind_and_a_metric(glue):
    tasks = {name: open_glue(name, str(glue)) for name in TABLE if name != "ax"}
    assert {name for name, task in tasks.items() if task.symmetric} == {"mrpc", "stsb"}
    others = {name: task.metric for name, task in tasks.items() if task.metric != "accuracy"}
    assert others == {"cola": "mcc", "stsb": "spearman"}
    assert tasks["stsb"].kind == Regress(0, 5, scaled=True)
    assert tasks["mrpc"].kind == Classify(("not_equivalent", "equivalent"))
    assert open_glue("ax", str(glue)).kind == tasks["mnli"].kind


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("SST-2", "sst2"), ("sst", "sst2"), ("STS_B", "stsb"), ("CoLA", "cola"), ("MNLI", "mnli"), ("diagnostic", "ax")],
)
def test_the_usual_spellings_of_names_are_accepted(glue, spelling, name):
    assert open_glue(spelling, str(glue)).name == name


def test_an_unknown_split_is_an_error(glue):
    with pytest.raises(InputError, match="split of the task 'rte' 'dev_matched'"):
        read(glue, "rte", "dev_matched")


def test_the_folder_may_be_the_tasks_own(glue):
    assert read(glue / "MRPC", "mrpc", "dev") == read(glue, "mrpc", "dev")


def test_a_folder_with_any_name_is_accepted(glue, tmp_path):
    (glue / "RTE").rename(tmp_path / "mine")
    assert len(read(tmp_path / "mine", "rte", "dev")) == 2


def test_the_folder_of_another_task_is_an_error(glue):
    with pytest.raises(
        InputError, match=r"data must be the folder of WNLI or its parent, got '.*RTE', the folder of RTE"
    ):
        open_glue("wnli", str(glue / "RTE"))


def test_a_missing_folder_is_an_error():
    with pytest.raises(InputError, match="folder 'nowhere' not found"):
        open_glue("rte", "nowhere")


def test_a_missing_file_is_an_error_when_its_split_is_read(glue):
    task = open_glue("qnli", str(glue))
    assert len(task.examples("dev")) == 2
    with pytest.raises(InputError, match=r"'.*QNLI/train.tsv' not found"):
        task.examples("train")


def test_the_mismatched_split_of_mnli_is_optional(glue):
    (glue / "MNLI" / "dev_mismatched.tsv").unlink()
    assert set(open_glue("mnli", str(glue)).splits) == {"train", "dev", "test", "test_mismatched"}


@pytest.mark.prove
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared GLUE files")
@pytest.mark.parametrize(
    ("name", "split", "count"),
    [
        ("cola", "train", 8551),
        ("cola", "dev", 1043),
        ("sst2", "train", 67349),
        ("sst2", "dev", 872),
        ("mrpc", "train", 3668),
        ("mrpc", "dev", 408),
        ("stsb", "train", 5749),
        ("stsb", "dev", 1500),
        ("rte", "train", 2490),
        ("rte", "dev", 277),
        ("wnli", "train", 635),
        ("wnli", "dev", 71),
        ("qnli", "dev", 5463),
        ("mnli", "dev", 9815),
    ],
)
def test_the_real_files_have_the_published_number_of_examples(name, split, count):
    assert len(read(SHARED, name, split)) == count
