"""The examples of docs/python.md run."""

import json
import re
from pathlib import Path

import pytest

from extras import needs_metrics

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The variables after running the examples of the page, and the folder they ran in."""
    folder = tmp_path_factory.mktemp("page")
    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(example, names)
    return names, folder


@needs_metrics
def test_every_function_writes_its_files_and_returns_the_report_of_its_command(ran):
    names, folder = ran
    assert names["prepared"].train.tokens > 100
    assert names["trained"].to_json()["model"] == "runs/mine/final"
    assert names["trained"].outcome.step == 4
    assert names["student"].to_json()["finished"]
    assert names["tuned"].model == Path("runs/topics/final")
    assert (folder / "runs" / "classifier" / "model.safetensors").exists()
    assert names["features"].predict(["ship 7 sails to the town"]).shape == (1,)
    assert 0 <= names["report"].to_json()["metrics"]["accuracy"] <= 1
    for run in ("mine", "teacher", "student", "topics"):
        assert (folder / "runs" / run / "final" / "model.safetensors").exists()


@needs_metrics
def test_keyword_arguments_override_the_recipe(ran):
    _, folder = ran
    recipe = json.loads((folder / "runs" / "mine" / "recipe.json").read_text())
    assert (recipe["steps"], recipe["batch"], recipe["optimizer"]["beta2"]) == (4, 8, 0.98)
    assert recipe["optimizer"]["bias_correction"] is True


def test_the_page_has_an_example_of_every_command():
    for job in ("prepare", "pretrain", "distill", "finetune", "evaluate"):
        assert f"lightbert.{job}(" in PAGE
