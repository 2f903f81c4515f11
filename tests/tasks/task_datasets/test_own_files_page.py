"""docs/own-files.md agrees with the code: every example, rule and key."""

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

from lightbert import recipes
from lightbert.config import assignments
from lightbert.tasks.datasets import open_task
from lightbert.tasks.datasets.own_files import Files, infer_kind
from lightbert.tasks.finetune.plan import plan

PAGE = (Path(__file__).parents[3] / "docs" / "own-files.md").read_text(encoding="utf-8")
FILES = {name: text for _, name, text in re.findall(r"^```(\w+) (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)}
COMMANDS = re.findall(r"^lightbert finetune .*$", PAGE, re.MULTILINE)
KINDS = {
    "classify.csv": "classify",
    "pairs.csv": "classify",
    "labels.jsonl": "labels",
    "joined.csv": "labels",
    "stars.csv": "regress",
    "tags.conll": "tokens",
    "tags.jsonl": "tokens",
}


def test_every_example_has_a_command():
    assert [next(name for name in FILES if name in line) for line in COMMANDS] == [*FILES] == [*KINDS]


def test_every_example_is_read_as_its_kind(tmp_path, monkeypatch):
    for line in COMMANDS:
        monkeypatch.chdir(tmp_path)
        for name, text in FILES.items():
            (tmp_path / name).write_text(text)
        _, _, recipe, *pairs = shlex.split(line)
        [run] = plan(recipes.read(recipe), assignments(pairs)).runs
        data = run.recipe.data
        assert isinstance(data, Files)
        task = open_task(run.recipe.task or "own", data)
        assert task.kind.name == KINDS[data.train]
        examples = [*task.examples("train"), *task.examples("dev")]
        assert len(examples) == (3 if data.train == "stars.csv" else 2)
        if data.text_b:
            assert all(example.text_b for example in examples)


RULES = re.findall(r"^\| `(\[.*\])` \| `(\w+)` \|", PAGE, re.MULTILINE)


def test_every_rule_is_that_of_the_code():
    for labels, kind in RULES:
        assert infer_kind(json.loads(labels)).name == kind


def test_the_rules_cover_every_kind_of_label():
    assert {kind for _, kind in RULES} == {"classify", "regress", "labels"}
    assert infer_kind([number / 4 for number in range(11)] * 4).name == "regress"
    assert infer_kind([*range(100)]).name == "classify"


def test_every_key_is_described():
    _, table = PAGE.split("## Keys")
    named = set(re.findall(r"`data\.(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    assert named == {field.name for field in fields(Files)}
