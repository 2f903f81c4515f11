"""Two steps of every fine-tuning recipe, with unchanged lengths and heads, on files in the right formats."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from recipe_files import FINETUNING, FOLDER, values
from task_files import write_model, write_tasks

import lightbert
from extras import needs_metrics
from lightbert.config import assignments
from lightbert.tasks.finetune.grid import run_all
from lightbert.tasks.finetune.plan import Plan, plan
from lightbert.train.distributed import process_group
from lightbert.train.signals import Interruption

RUN = ("steps=2", "log_every=1", "workers=0", "device=cpu")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    where = tmp_path_factory.mktemp("models")
    families = {"convbert": "convbert-tiny", "composite": "composite-tiny", "mobilebert": "mobilebert-nano"}
    return {family: write_model(where / family, preset) for family, preset in families.items()}


def data_of(name: str, tasks: Mapping[str, Path]) -> list[str]:
    """The overrides for data: a folder, or a table and its columns."""
    if name == "classify":
        return [f"data.train={tasks['own']}", "data.text=body", "data.label=topic", "data.hold_out=0.3"]
    return [f"data={tasks[name.partition('-')[0]]}"]


def one_combination(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Overrides that keep one seed and the first value of each axis of a grid."""
    if "seeds" in recipe:
        yield f"seeds=[{recipe['seeds'][0]}]"
    for key, axis in flattened(recipe.get("grid", {})):
        yield f"grid.{key}=[{axis[0]}]"


def flattened(grid: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    for key, value in grid.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def make_plan(name: str, tasks: Mapping[str, Path], models: Mapping[str, Path], out: Path) -> Plan:
    family = next((family for family in models if family in name), "convbert")
    given = [f"model={models[family]}", f"out={out}", *data_of(name, tasks), *RUN]
    return plan(values(name), assignments([*given, *one_combination(values(name))]))


@needs_metrics
@pytest.mark.parametrize("name", FINETUNING)
def test_two_steps_of_every_task_of_a_recipe_write_models_that_predict(name, tasks, models, tmp_path):
    runs = make_plan(name, tasks, models, tmp_path)
    assert [run.task for run in runs.runs] == values(name).get("tasks", [values(name).get("task", "")])
    with process_group("cpu") as world:
        done = run_all(runs, world, Interruption())
    for run, result in done:
        assert (result.finished, result.step) == (True, 2)
        assert result.metric in result.metrics
        model = lightbert.load(Path(run.recipe.out, "final"))
        assert model.task["task"] == (run.task or "own")
        # Chosen from the data, which are short, if the recipe doesn't set it.
        assert model.task["length"] == {"auto": 128}.get(values(name)["length"], values(name)["length"])
        given = ("Who sat?", "The cat sat.") if model.task["kind"] == "spans" or model.task["pairs"] else "The cat"
        assert model.predict(given)


def test_every_recipe_that_extends_fine_tuning_is_tested():
    assert FINETUNING
    assert {path.stem for path in FOLDER.glob("[!_]*.toml") if "_finetune.toml" in parents(path)} == set(FINETUNING)


def parents(path: Path) -> list[str]:
    """The parents of a recipe."""
    name = tomllib.loads(path.read_text(encoding="utf-8")).get("parent")
    return [name, *parents(FOLDER / name)] if name else []
