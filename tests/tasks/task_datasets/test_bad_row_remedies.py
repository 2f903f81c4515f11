"""The remedy in an error about a bad row works when it is added to the command."""

import json
from pathlib import Path

import pytest
from glue_files import write_glue
from tiny_classifiers import write_tiny_model
from tiny_tasks import SETTINGS, write_model

from extras import needs_metrics
from lightbert import cli
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens

BAD_ANSWER = {"id": "a", "question": "a ?", "answers": [{"text": "bad", "answer_start": 0}]}
GOOD_ANSWER = {"id": "b", "question": "a ?", "answers": [{"text": "film", "answer_start": 4}]}
PARAGRAPH = {"context": "the film was good", "qas": [BAD_ANSWER, GOOD_ANSWER]}


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    folder = write_glue(tmp_path / "glue")
    path = folder / "RTE" / "dev.tsv"
    path.write_text(path.read_text() + "7\tshort\n")
    (folder / "RTE" / "train.tsv").write_text(path.read_text())
    return folder


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    (tmp_path / "squad").mkdir()
    for split in ("train", "dev"):
        content = json.dumps({"version": "1.1", "data": [{"paragraphs": [PARAGRAPH]}]})
        (tmp_path / "squad" / f"{split}-v1.1.json").write_text(content)
    return tmp_path / "squad"


@pytest.fixture
def conll(tmp_path: Path) -> Path:
    (tmp_path / "conll").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "conll" / f"{split}.txt").write_text("film B-X\nwas O\n\nbad\n\na O\n")
    return tmp_path / "conll"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run a failing command, then again with the remedy of its error message; return the output of both."""

    def twice(*arguments: object) -> tuple[str, str]:
        line = [str(argument) for argument in arguments]
        assert cli.main(line) == 1
        before = capsys.readouterr().err
        remedy = before.strip().rpartition("skip such rows with ")[2]
        assert cli.main([*line, *remedy.split(" ")]) == 0, capsys.readouterr().err
        return before, capsys.readouterr().err

    return twice


@needs_metrics
@pytest.mark.parametrize(
    ("recipe", "task", "warning"),
    [
        ("glue-convbert-small", "rte", "skipped 1 bad row of"),
        ("squad-convbert-small", "squad", "skipped 1 of 2 questions"),
        ("tokens", "tokens", "skipped 1 bad row of"),
    ],
)
def test_bad_rows_of_named_tasks_are_skipped_in_fine_tuning(run, request, tmp_path, recipe, task, warning):
    data = request.getfixturevalue({"rte": "glue", "squad": "squad", "tokens": "conll"}[task])
    choice = (f"tasks={task}" if task == "rte" else f"task={task}", f"data={data}")
    start = (
        f"model={write_model(tmp_path / 'model')}",
        f"out={tmp_path / 'out'}",
        *SETTINGS,
        "steps=1",
        "answers.max_query=4",
    )
    before, after = run("finetune", recipe, *start, *choice)
    assert before.endswith("skip such rows with data.bad_rows=skip\n")
    assert warning in after


@needs_metrics
def test_bad_rows_of_tasks_and_tables_are_skipped_in_evaluation(run, tmp_path, glue, squad, conll):
    entailment = write_tiny_model(tmp_path / "rte", Classify(("entailment", "not_entailment")))
    reader = write_tiny_model(tmp_path / "reader", Spans(stride=4, max_query=4))
    tagger = write_tiny_model(tmp_path / "tagger", Tokens(("O", "B-X")))
    (tmp_path / "my.csv").write_text("text,label\na film,entailment\nbad,\n")
    (tmp_path / "RTE.tsv").write_text("index\tprediction\n0\tentailment\n1\tentailment\n")
    for arguments in (
        (entailment, "--task", "rte", "--data", glue),
        (entailment, "--data", tmp_path / "my.csv"),
        (reader, "--task", "squad", "--data", squad),
        (tagger, "--task", "tokens", "--data", conll),
        ("--task", "rte", "--data", glue, "--predictions", tmp_path / "RTE.tsv"),
    ):
        before, after = run("evaluate", *arguments)
        assert before.endswith("skip such rows with --bad-rows skip\n")
        assert "1 " in after


def test_a_missing_field_is_an_error_that_names_the_option(run, tmp_path):
    model = write_tiny_model(tmp_path / "model", Classify(("bad", "good")))
    (tmp_path / "my.jsonl").write_text(
        '{"body": "a film", "more": "good"}\n{"text": "bad"}\n{"body": "bad", "more": 3}\n{"body": "good"}\n'
    )
    before, after = run("predict", model, "--file", tmp_path / "my.jsonl", "--text", "body", "--text-b", "more")
    assert "line 2 of" in before
    assert "has no 'body', only 'text'; set its name with --text" in before
    assert after.startswith("skipped 3 bad rows")
