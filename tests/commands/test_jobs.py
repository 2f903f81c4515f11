"""The Python functions check their arguments like the command line, before any work is done."""

import json
import threading
from pathlib import Path

import pytest

import lightbert
from lightbert.commands import finetune, pretrain
from lightbert.commands.pretrain import planned
from lightbert.commands.recipes import command_words
from lightbert.config import assignments
from lightbert.errors import InputError

TEXT = "the river runs to the sea\nthe town lies by the river\n\n" * 40


def test_a_wrong_argument_is_one_sentence():
    for job, arguments, sentence in [
        ("pretrain", {"recipe": "tiny-rdt"}, "unknown recipe 'tiny-rdt'; did you mean 'tiny-rtd'?"),
        ("pretrain", {"recipe": "tiny-rtd", "learning_rate": 1}, "unknown key 'learning_rate'; did you mean 'lr'?"),
        ("pretrain", {"recipe": "classify"}, "'classify' is a recipe for finetune"),
        ("pretrain", {"recipe": "tiny-rtd", "lr": 0, "data": "d", "out": "o"}, "lr must be > 0, got 0.0"),
        (
            "pretrain",
            {"recipe": "tiny-rtd", "optimizer.beta2": 0.5},
            "'optimizer.beta2' must be given as a dict; write optimizer={'beta2': …}",
        ),
        ("distill", {"recipe": "tiny-distill", "data": "d", "out": "o"}, "requires a teacher; add teacher=PATH"),
        ("finetune", {"recipe": "classify", "model": "m", "out": "o"}, "requires training data"),
        ("finetune", {"recipe": "classify", "grid": {"lr": 1}}, "grid.lr must be a list of values"),
        ("prepare", {"sources": "x", "out": "o", "vocab": 3}, "unknown key 'vocab'; did you mean 'vocab_size'?"),
        ("evaluate", {"model": "m", "lable": "x"}, "unknown key 'lable'; did you mean 'label'?"),
        ("evaluate", {}, "evaluate requires a model or predictions"),
    ]:
        with pytest.raises(InputError) as raised:
            getattr(lightbert, job)(**arguments)
        assert sentence in str(raised.value)


def test_paths_tuples_and_dicts_are_accepted(monkeypatch):
    given = []
    monkeypatch.setattr(finetune, "run", lambda recipe, command: given.append(recipe))
    files = {"train": Path("my.csv"), "text": "body"}
    lightbert.finetune("classify", model=Path("m"), data=files, out=Path("o"), seeds=(1, 2), grid={"lr": (1e-4,)})
    [plan] = given
    assert [(run.seed, run.recipe.lr, run.recipe.data.train) for run in plan.runs] == [
        (1, 1e-4, "my.csv"),
        (2, 1e-4, "my.csv"),
    ]


def test_the_folder_of_a_task_is_accepted_as_a_string_or_in_a_dict(monkeypatch):
    given = []
    monkeypatch.setattr(finetune, "run", lambda recipe, command: given.append(recipe))
    lightbert.finetune("tokens", model="m", data="CONLL", out="o")
    lightbert.finetune("tokens", model="m", data={"folder": "CONLL", "bad_rows": "skip"}, out="o")
    assert given[0].runs[0].recipe.data == "CONLL"
    assert given[1].runs[0].recipe.data.folder == "CONLL"


def test_a_toml_file_is_accepted_as_a_recipe(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(pretrain, "run", lambda recipe, command: given.append(recipe))
    (tmp_path / "mine.toml").write_text('parent = "tiny-rtd"\nsteps = 7\n')
    lightbert.pretrain(tmp_path / "mine.toml", data="d", out="o", phases=[{"length": 128, "steps": 2}])
    [recipe] = given
    assert (recipe.model, recipe.steps, recipe.phases[0].length) == ("convbert-tiny", 7, 128)


def test_a_command_runs_outside_of_the_main_thread(tmp_path):
    (tmp_path / "my.txt").write_text(TEXT)
    lightbert.prepare([tmp_path / "my.txt"], tmp_path / "data", vocab_size=64, held_out=0.1, workers=1)
    reports = []

    def job() -> None:
        small = {"steps": 1, "batch": 2, "length": 16, "device": "cpu", "workers": 0}
        reports.append(lightbert.pretrain("tiny-rtd", data=tmp_path / "data", out=tmp_path / "run", **small))

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert json.dumps(reports[0].to_json())
    assert reports[0].outcome.finished


def test_none_in_the_words_of_a_command_is_read_as_none():
    words = command_words("pretrain", "tiny-rtd", {"dropout": None, "masking": {"most": None}, "steps": 3})
    assert words == ("lightbert", "pretrain", "tiny-rtd", "dropout=none", "masking.most=none", "steps=3")
    [run] = planned("pretrain", "tiny-rtd", assignments([*words[3:], "data=a", "out=b"])).runs
    recipe = run.recipe
    assert (recipe.dropout, recipe.masking.most) == (None, None)


def test_a_table_is_saved_in_a_folder_named_after_its_content(monkeypatch, tmp_path: Path):
    given = []
    monkeypatch.setattr(finetune, "run", lambda recipe, command: given.append(recipe))
    monkeypatch.chdir(tmp_path)
    rows = [{"body": "a ship", "topic": "sea"}, {"body": "a road", "topic": 3}]
    frame = pytest.importorskip("pandas").DataFrame(rows)
    for table in (rows, frame):
        lightbert.finetune("classify", data={"train": table, "text": "body", "label": "topic"})
    lightbert.finetune("classify", data=frame, seeds=[1, 2], out="mine")
    first, second, third = given
    assert first.out == second.out == Path(first.runs[0].recipe.data.train).parent
    assert [json.loads(line) for line in Path(first.runs[0].recipe.data.train).read_text().splitlines()] == rows
    assert third.out == Path("mine")
    assert {run.recipe.data.train.rpartition("-")[0] for run in third.runs} == {"mine/train"}


def test_a_run_without_out_is_named_after_its_file(monkeypatch):
    given = []
    monkeypatch.setattr(finetune, "run", lambda recipe, command: given.append(recipe))
    for keys in ({}, {"seeds": [1, 2]}):
        lightbert.finetune("classify", data={"train": "x/my.csv"}, **keys)
    assert [(plan.out, plan.runs[0].recipe.out) for plan in given] == [
        (Path("runs/my"), "runs/my"),
        (Path("runs/my"), "runs/my/runs/seed-1"),
    ]
