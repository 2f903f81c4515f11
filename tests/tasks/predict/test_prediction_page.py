"""docs/prediction.md matches the command."""

import json
import re
from pathlib import Path

import pytest
from command_options import option_names
from tiny_classifiers import tiny_model

from lightbert import cli
from lightbert.commands.predict import command
from lightbert.models import folder
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.predictor import Predictor

PAGE = (Path(__file__).parents[3] / "docs" / "prediction.md").read_text(encoding="utf-8")
OPTIONS = option_names(command)
TOPICS = Classify(("bad", "good"))
KINDS = {
    "one label": TOPICS,
    "several labels": Labels(("a", "b")),
    "a number": Regress(0.0, 5.0),
    "tags": Tokens(("O", "B-X")),
    "questions": Spans(stride=4, max_query=4),
}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The folders and files used by the examples of the page."""
    for name, kind in {"topics": TOPICS, "rte": TOPICS, "squad": KINDS["questions"]}.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        model = tiny_model(kind)
        model.task["data"] = {"text": "body"}
        folder.save(model, tmp_path / "runs" / name / "final")
    (tmp_path / "my.csv").write_text("id,body\n1,good film\n")
    (tmp_path / "my.txt").write_text("good film\nbad film\n")
    monkeypatch.chdir(tmp_path)


def test_every_option_on_the_page_exists():
    for option in sorted(set(re.findall(r"--[a-z][a-z-]+", PAGE))):
        assert option in OPTIONS


def test_every_example_runs(runs):
    for line in [line for line in PAGE.splitlines() if line.startswith("lightbert predict runs")]:
        arguments = [first or other for first, other in re.findall(r'"([^"]*)"|(\S+)', line)]
        assert cli.main(arguments[1:]) == 0


def test_the_output_on_the_page_has_the_fields_of_the_command(runs, capsys):
    cli.main(["predict", "runs/topics/final", "some text"])
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    found, expected = json.loads(capsys.readouterr().out), json.loads(shown)
    assert list(found) == list(expected)
    assert found["text"] == expected["text"]
    assert list(found["probabilities"]) == list(expected["probabilities"])


def test_the_fields_of_every_kind_are_listed():
    for name in KINDS:
        text = {"question": "a film", "context": "the film was good"} if name == "questions" else "good film"
        found = Predictor(tiny_model(KINDS[name])).predict(text)
        [listed] = re.findall(rf"^\| {name} \| (.*) \|$", PAGE, re.MULTILINE)
        inner = [*found["tags"][:1], {"type", "text", "start", "end"}] if name == "tags" else []
        assert set(re.findall(r"`(\w+)`", listed)) == set(found).union(*inner)


def test_the_python_example_runs(runs, capsys):
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    answers = capsys.readouterr().out.split()
    assert len(answers) == 2
    assert set(answers) <= {"bad", "good"}


def test_the_page_stays_short():
    assert len(PAGE.splitlines()) < 90
