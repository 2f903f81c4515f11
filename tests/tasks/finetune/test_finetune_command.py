"""`lightbert finetune`: terminal and JSON output."""

import json
from pathlib import Path

import pytest
from tiny_tasks import SETTINGS, write_model, write_reviews

import lightbert
from extras import needs_metrics
from lightbert.cli import main
from lightbert.config import assignments
from lightbert.recipes import read
from lightbert.tasks.finetune.dataset import load_data
from lightbert.tasks.finetune.plan import plan

pytestmark = needs_metrics

RECIPE = "classify"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    where = tmp_path_factory.mktemp("start")
    model, train = write_model(where / "model"), write_reviews(where / "train.csv", rows=20)
    return [*SETTINGS, f"model={model}", f"data.train={train}", "data.text=body", "data.label=topic", "steps=2"]


def test_json_output_is_one_object_with_the_metrics_and_the_model(start, tmp_path, capfd):
    assert main(["finetune", RECIPE, *start, f"out={tmp_path}", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["finished"]
    assert {"accuracy", "f1", "mcc"} == report["metrics"].keys()
    assert Path(report["model"]) == tmp_path / "final"


def test_the_terminal_output_has_the_metrics_and_the_saved_weights(start, tmp_path, capfd):
    assert main(["finetune", RECIPE, *start, f"out={tmp_path}", "choose=last"]) == 0
    page = capfd.readouterr().out
    assert "accuracy" in page
    assert "last, of step 2" in page
    assert f"model: {tmp_path / 'final'}" in page.replace("\n", "")


def test_only_one_process_prints_the_data_summary(start, tmp_path, capfd):
    recipe = plan(read(RECIPE), assignments([*start, f"out={tmp_path}", "length=12"])).runs[0].recipe
    tokenizer = lightbert.load(recipe.model).tokenizer
    load_data(recipe, tokenizer, verbose=False)
    assert capfd.readouterr().err == ""
    load_data(recipe, tokenizer)
    assert "examples to train on" in capfd.readouterr().err


def test_the_data_summary_and_an_existing_run_are_reported(start, tmp_path, capfd):
    # Data that no other test has loaded, because the summary is printed once.
    line = ["finetune", RECIPE, *start, f"out={tmp_path}", "length=11"]
    assert main(line) == 0
    stderr = capfd.readouterr().err
    assert "own: classify, 2 labels (bad, good); 18 examples to train on, 2 in dev" in stderr
    assert main(line) == 0
    stderr = capfd.readouterr().err
    assert stderr == f"'{tmp_path}' is already trained; set out= to another folder to train again\n"


def test_several_runs_are_summarized_in_one_table(start, tmp_path, capfd):
    assert main(["finetune", RECIPE, *start, f"out={tmp_path}", "seeds=[3, 4]", "grid.lr=[1e-3, 1e-2]"]) == 0
    page = capfd.readouterr().out
    assert [line.split()[1] for line in page.splitlines() if line.split()[:1] == ["own"]] == ["lr=0.001", "lr=0.01"]
    assert all(title in page for title in ("median", "± error", "best seed"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["data.label=topick"], "has no column 'topick', only body, topic; did you mean 'topic'?"),
        (["lr=-1"], "lr must be > 0, got -1.0"),
        (["epoch=3"], "unknown key 'epoch'; did you mean 'epochs'?"),
        (["model=nowhere/final"], "model folder 'nowhere/final' not found"),
        (["task=cool", "data=''"], "unknown task 'cool'; did you mean 'cola'?"),
        (["data=my.csv"], "data must be the folder of a task, got 'my.csv'; for your own file write data.train=my.csv"),
        (
            ["data.train=my.doc"],
            "must end in .csv, .tsv, .jsonl, .ndjson, .json, .parquet, .xlsx; save it",
        ),
    ],
)
def test_invalid_input_is_a_one_line_error(start, tmp_path, capfd, change, sentence, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.doc").write_text("{}\n")
    kept = [each for each in start if not (change[-1].startswith("data=") and each.startswith("data."))]
    assert main(["finetune", RECIPE, *kept, f"out={tmp_path}", *change]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert sentence in captured.err.splitlines()[-1]


def test_a_single_file_of_a_task_is_not_enough_to_train(start, tmp_path, capfd):
    path = tmp_path / "train-v1.1.json"
    path.write_text(json.dumps({"data": []}))
    kept = [each for each in start if not each.startswith("data.")]
    assert main(["finetune", RECIPE, *kept, f"out={tmp_path / 'out'}", "task=squad", f"data={path}"]) == 1
    assert f"the task 'squad' requires a training file, but '{path}' only has dev" in capfd.readouterr().err
