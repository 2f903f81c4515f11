"""Two steps of every fine-tuning recipe, with unchanged lengths and heads, on files in the right formats."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from recipe_files import FINETUNING, values
from task_files import write_model, write_tasks

import lightbert
from extras import needs_metrics
from lightbert.config import assignments
from lightbert.recipes import names, packaged
from lightbert.tasks.finetune.grid import run_all
from lightbert.tasks.finetune.plan import plan
from lightbert.train.distributed import process_group
from lightbert.train.signals import Interruption

RUN = ("steps=2", "log_every=1", "workers=0", "device=cpu")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    where = tmp_path_factory.mktemp("models")
    families = {"convbert": "convbert-tiny", "composite": "composite-tiny", "mobilebert": "mobilebert-nano"}
    return {family: write_model(where / family, preset) for family, preset in families.items()}


def data_of(name, tasks):
    """The overrides for data: a folder, or a table and its columns."""
    if name == "classify":
        return [f"data.train={tasks['own']}", "data.text=body", "data.label=topic", "data.hold_out=0.3"]
    return [f"data={tasks[name.partition('-')[0]]}"]


def one_combination(recipe):
    """Overrides that keep one seed and the first value of each axis of a grid."""
    if "seeds" in recipe:
        yield f"seeds=[{recipe['seeds'][0]}]"
    for key, axis in flattened(recipe.get("grid", {})):
        yield f"grid.{key}=[{axis[0]}]"


def flattened(grid, prefix=""):
    for key, value in grid.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def make_plan(name, tasks, models, out):
    family = next((family for family in models if family in name), "convbert")
    overrides = [f"model={models[family]}", f"out={out}", *data_of(name, tasks), *RUN]
    return plan(values(name), assignments([*overrides, *one_combination(values(name))]))


# Recipes that differ in their learning rates only are trained once; those of vectors in tests/tasks/finetune.
DISTINCT = {str({**values(name), "lr": 0}): name for name in FINETUNING if not name.startswith("vectors-")}


@needs_metrics
@pytest.mark.parametrize("name", DISTINCT.values())
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
        is_pair = model.task["kind"] == "spans" or model.task["pairs"]
        assert model.predict(("Who sat?", "The cat sat.") if is_pair else "The cat")


def test_every_recipe_that_extends_fine_tuning_is_tested():
    assert {name for name in names() if "_finetune" in parents(name)} == set(FINETUNING)


def parents(name):
    """Return the parents of a recipe."""
    parent = packaged()[name].get("parent")
    return [parent, *parents(parent)] if parent else []
