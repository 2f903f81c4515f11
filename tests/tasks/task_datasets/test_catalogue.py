"""Tasks by name."""

import json

import pytest
from glue_files import write_glue

from lightbert.errors import InputError
from lightbert.tasks.datasets import open_task
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.tokens import Tokens

QUESTION = {"id": "q", "question": "Who rowed?", "answers": [{"text": "Ada", "answer_start": 0}]}
SQUAD = {"data": [{"title": "Boats", "paragraphs": [{"context": "Ada rowed home.", "qas": [QUESTION]}]}]}


@pytest.fixture
def glue(tmp_path):
    return write_glue(tmp_path / "glue")


def test_every_glue_task_is_available(glue):
    for name in ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]:
        assert open_task(name, str(glue)).name == name


@pytest.mark.parametrize(("name", "version"), [("squad", "1.1"), ("squad2", "2.0")])
def test_both_versions_of_squad_are_available(tmp_path, name, version):
    (tmp_path / f"dev-v{version}.json").write_text(json.dumps({"version": version, **SQUAD}), encoding="utf-8")
    task = open_task(name, str(tmp_path))
    assert task.name == name
    assert [question.id for question in task.examples("dev")] == ["q"]


def test_squad_requires_a_folder():
    with pytest.raises(InputError, match="task 'squad' requires data=FOLDER"):
        open_task("squad")


def test_custom_files_are_a_task(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("text,label\nwarm soup,food\nred bus,traffic\n", encoding="utf-8")
    for data in (Files(train=str(path)), str(tmp_path)):
        task = open_task("own", data)
        assert (task.name, task.kind) == ("own", Classify(("food", "traffic")))


def test_custom_files_must_be_given(tmp_path, monkeypatch):
    (tmp_path / "train.csv").write_text("text,label\nwarm soup,food\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"requires data.train=FILE"):
        open_task("own", "")


def test_sentences_with_tags_are_a_task_whatever_their_file_is_called(tmp_path):
    path = tmp_path / "train.words"
    path.write_text("Ada\tB-PER\nrowed\tO\n\nrain\tO\n", encoding="utf-8")
    task = open_task("tokens", Files(train=str(path)))
    assert task.name == "tokens"
    assert isinstance(task.kind, Tokens)


def test_a_named_task_does_not_accept_custom_files():
    with pytest.raises(
        InputError,
        match=r"task 'mnli' can't be combined with data\.train, .*: give data=FOLDER, or remove task=mnli",
    ):
        open_task("mnli", Files(train="my.csv"))


def test_an_unknown_task_gets_a_suggestion():
    with pytest.raises(InputError, match="unknown task 'squadd'; did you mean 'squad'"):
        open_task("squadd", "somewhere")
