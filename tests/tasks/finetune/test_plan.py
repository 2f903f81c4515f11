"""One command, many runs: tasks, grid values and seeds."""

from pathlib import Path

import pytest

from lightbert.config import assignments
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.finetune.plan import Plan, expand_data_key, plan

RECIPE = """
lr = 1e-4
epochs = 3
model = "runs/x"
out = "runs/y"
data = "glue"
per_task.rte.epochs = 10
per_task.mrpc.model = "runs/mnli/seed-{seed}"
"""


@pytest.fixture
def planned(tmp_path: Path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)

    def make(*overrides: str) -> Plan:
        return plan(read(path), assignments(expand_data_key(overrides)))

    return make


def test_a_single_run_uses_the_out_folder_itself(planned):
    [run] = planned("task=cola").runs
    assert (run.recipe.out, run.recipe.task, run.recipe.epochs, run.settings) == ("runs/y", "cola", 3.0, "")


def test_every_combination_runs_in_its_own_folder(planned):
    made = planned("tasks=[cola, rte]", "seeds=1,2", "grid.lr=[1e-4, 3e-4]", "grid.optimizer.weight_decay=[0, 0.1]")
    assert len(made.runs) == 16 == len({run.recipe.out for run in made.runs})
    last = made.runs[-1]
    assert last.recipe.out == "runs/y/runs/rte_lr-0.0003_optimizer.weight_decay-0.1_seed-2"
    assert (last.recipe.lr, last.recipe.optimizer.weight_decay, last.recipe.seed) == (3e-4, 0.1, 2)
    assert last.settings == "lr=0.0003 optimizer.weight_decay=0.1"


def test_per_task_values_are_overridden_by_the_command_line(planned):
    assert [run.recipe.epochs for run in planned("tasks=[cola, rte]").runs] == [3.0, 10.0]
    assert [run.recipe.epochs for run in planned("tasks=[cola, rte]", "epochs=5").runs] == [5.0, 5.0]
    assert planned("task=rte", "per_task.rte.epochs=4").runs[0].recipe.epochs == 4.0
    assert planned("task=mrpc").runs[0].recipe.model == "runs/mnli/seed-{seed}"


def test_the_grid_overrides_everything(planned):
    assert [run.recipe.epochs for run in planned("task=rte", "epochs=5", "grid.epochs=[1, 2]").runs] == [1.0, 2.0]


@pytest.mark.parametrize("given", [[], ["data=other"], ["data = other"]])
def test_data_keys_can_be_combined_with_the_folder_shorthand(planned, given):
    [run] = planned("task=rte", *given, "data.bad_rows=skip").runs
    assert run.recipe.data == Files(folder="other" if given else "glue", bad_rows="skip")
    assert planned("task=rte").runs[0].recipe.data == "glue"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seeds=[1, 1]", "seeds must not contain duplicates, got [1, 1]: they would be the same run"),
        ("seeds=a,2", "seeds must be a list such as [1, 2, 3], got 'a,2'"),
        ("seeds=[a]", "seeds must be a list such as [1, 2, 3], got '[a]'"),
        ("grid.lr=1e-4", "grid.lr must be a list of values, such as [1e-4, 3e-4], got 0.0001"),
        ("grid.seed=[1, 2]", "grid can't vary seed; write seeds=[0, 1]"),
        ("grid.task=[rte]", 'grid can\'t vary task; write tasks=["rte", "mrpc"]'),
        ("grid=3", "grid must map keys to lists of values, such as grid.lr=[1e-4, 3e-4], got 3"),
        ("grid.lrr=[1]", "unknown key 'lrr'; did you mean 'lr'?"),
        ("per_task=3", "per_task must be a table of keys for each task, got 3"),
        ("lr=0", "lr must be > 0, got 0.0"),
        ("layer_decay=1.2", "layer_decay must be in (0, 1], got 1.2"),
    ],
)
def test_invalid_plans_are_errors(planned, override, sentence):
    with pytest.raises(InputError) as error:
        planned("task=cola", override)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [("model", "model is required; add model=FOLDER"), ("out", "out is required; add out=FOLDER")],
)
def test_missing_required_keys_are_errors(planned, missing, sentence):
    with pytest.raises(InputError, match=sentence):
        planned("task=cola", f"{missing}=''")


def test_a_recipe_without_training_data_is_an_error(tmp_path: Path):
    path = tmp_path / "recipe.toml"
    path.write_text('model = "x"\nout = "y"')
    with pytest.raises(
        InputError, match=r"a recipe requires training data: add task=NAME data=FOLDER, or data.train=FILE"
    ):
        plan(read(path), {})
