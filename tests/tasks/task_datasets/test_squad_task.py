"""SQuAD as a task: finding and writing files."""

import json
import lzma

import pytest
from questions import document, encoder, perfect_outputs, question_entry, write

from lightbert.errors import InputError
from lightbert.tasks.datasets.squad import score, squad_task, write_answers
from lightbert.tasks.kinds.spans import Spans

CONTEXT = "The cat sat on the mat."
FIRST = document(CONTEXT, question_entry("a", ("cat", 4)), question_entry("b", ("mat", 19), ("the mat", 15)))
SECOND = document(CONTEXT, question_entry("c", ("cat", 4)), question_entry("d", is_impossible=True), version="v2.0")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train-v1.1.json", FIRST)
    (tmp_path / "dev-v1.1.json.xz").write_bytes(lzma.compress(json.dumps(FIRST).encode()))
    (tmp_path / "class-dev-v2.0.json.xz").write_bytes(lzma.compress(json.dumps(SECOND).encode()))
    write(tmp_path / "development-v2.0.json", {})
    return tmp_path


def test_the_files_of_a_version_are_found_in_a_folder(folder):
    task = squad_task(folder, version="1.1")
    assert (task.name, task.metric, sorted(task.splits)) == ("squad", "f1", ["dev", "train"])
    assert [question.id for question in task.examples("dev")] == ["a", "b"]
    assert task.kind == Spans()
    assert task.kind.with_settings(head="beam", stride=64) == Spans(head="beam", stride=64)


@pytest.mark.parametrize(("head", "threshold"), [("span", 0.0), ("beam", -2.75)])
def test_the_initial_threshold_of_2_0_is_the_released_one(folder, head, threshold):
    task = squad_task(folder, version="2.0")
    assert (task.name, sorted(task.splits)) == ("squad2", ["dev"])
    assert task.kind.with_settings(head=head).null_threshold == threshold
    assert task.kind.null_threshold == 0.0
    assert [len(question.answers) for question in task.examples("dev")] == [1, 0]


def test_a_single_file_is_the_dev_split(folder):
    assert sorted(squad_task(str(folder / "train-v1.1.json"), version="1.1").splits) == ["dev"]


def test_two_files_for_a_split_are_an_error_unless_one_has_the_official_name(folder):
    write(folder / "my-dev-v2.0.json", SECOND)
    with pytest.raises(
        InputError, match=r"must contain one file for dev, got class-dev-v2.0.json.xz, my-dev-v2.0.json; rename one"
    ):
        squad_task(folder, version="2.0")
    write(folder / "dev-v2.0.json", SECOND)
    assert len(squad_task(folder, version="2.0").examples("dev")) == 2


def test_missing_files_are_errors(tmp_path):
    with pytest.raises(InputError, match=r"must contain a file such as train-v1.1.json"):
        squad_task(tmp_path, version="1.1")
    with pytest.raises(InputError, match=r"'.*absent' not found; give a folder with dev-v2.0.json"):
        squad_task(tmp_path / "absent", version="2.0")
    with pytest.raises(InputError, match=r"unknown version of SQuAD '3\.0'"):
        squad_task(tmp_path, version="3.0")


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_an_unknown_head_is_an_error(folder, version):
    with pytest.raises(InputError, match="unknown head for questions 'joint'; choose from span, beam"):
        squad_task(folder, version=version).kind.with_settings(head="joint")


def test_a_setting_below_one_is_an_error(folder):
    for setting in ["stride", "max_query", "max_answer", "n_best"]:
        with pytest.raises(InputError, match=f"{setting} must be >= 1, got 0"):
            squad_task(folder, version="1.1").kind.with_settings(**{setting: 0})


@pytest.mark.parametrize("head", ["span", "beam"])
def test_a_written_file_scores_like_the_predictions(folder, head):
    task = squad_task(folder, version="2.0")
    kind = task.kind.with_settings(head=head)
    questions = task.examples("dev")
    features = kind.features(questions, encoder(80))
    predictions = kind.predictions(questions, features, perfect_outputs(features, head))
    write_answers(folder / "out", questions, predictions)
    data, out = folder / "class-dev-v2.0.json.xz", folder / "out"
    found = score(data, out / "predictions.json", out / "null_odds.json")
    assert (found["exact"], found["best_f1"]) == (100.0, 100.0)
    metrics = kind.metrics(questions, predictions)
    assert metrics == {"f1": 1, "exact": 1, "HasAns_exact": 1, "HasAns_f1": 1, "NoAns_exact": 1, "NoAns_f1": 1}
    assert next(iter(metrics)) == "f1"
    listed = json.loads((out / "nbest.json").read_text(encoding="utf-8"))
    assert listed["c"][0]["answer"] == "cat"


def test_missing_or_duplicate_ids_are_errors(folder):
    questions = squad_task(folder, version="1.1").examples("dev")
    empty = {"answer": "", "null_score": 0.0, "n_best": []}
    with pytest.raises(InputError, match="every question must have a unique id, got 'a'"):
        write_answers(folder / "out", [questions[0], questions[0]], [empty, empty])
    assert not (folder / "out").exists()
