"""One command, many runs: tasks, grid values and seeds."""

from pathlib import Path

import pytest

from lightbert.config import assignments
from lightbert.errors import InputError
from lightbert.recipes import read
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.finetune.plan import Plan, long_form, plan

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
        return plan(read(path), assignments(long_form(overrides)))

    return make


def test_one_run_has_the_folder_to_itself(planned):
    [run] = planned("task=cola").runs
    assert (run.recipe.out, run.recipe.task, run.recipe.epochs, run.settings) == ("runs/y", "cola", 3.0, "")


def test_every_combination_is_run_in_a_folder_of_its_own(planned):
    made = planned("tasks=[cola, rte]", "seeds=[1, 2]", "grid.lr=[1e-4, 3e-4]", "grid.optimizer.weight_decay=[0, 0.1]")
    assert len(made.runs) == 16 == len({run.recipe.out for run in made.runs})
    last = made.runs[-1]
    assert last.recipe.out == "runs/y/runs/rte_lr-0.0003_optimizer.weight_decay-0.1_seed-2"
    assert (last.recipe.lr, last.recipe.optimizer.weight_decay, last.recipe.seed) == (3e-4, 0.1, 2)
    assert last.settings == "lr=0.0003 optimizer.weight_decay=0.1"


def test_a_task_has_its_own_values_and_the_command_line_beats_them(planned):
    assert [run.recipe.epochs for run in planned("tasks=[cola, rte]").runs] == [3.0, 10.0]
    assert [run.recipe.epochs for run in planned("tasks=[cola, rte]", "epochs=5").runs] == [5.0, 5.0]
    assert planned("task=rte", "per_task.rte.epochs=4").runs[0].recipe.epochs == 4.0
    assert planned("task=mrpc").runs[0].recipe.model == "runs/mnli/seed-{seed}"


def test_the_grid_beats_everything(planned):
    assert [run.recipe.epochs for run in planned("task=rte", "epochs=5", "grid.epochs=[1, 2]").runs] == [1.0, 2.0]


@pytest.mark.parametrize("given", [[], ["data=other"], ["data = other"]])
def test_keys_of_data_stand_beside_the_folder_that_it_is_short_for(planned, given):
    [run] = planned("task=rte", *given, "data.bad_rows=skip").runs
    assert run.recipe.data == Files(folder="other" if given else "glue", bad_rows="skip")
    assert planned("task=rte").runs[0].recipe.data == "glue"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seeds=[1, 1]", "seeds = [1, 1] names something twice: each would be the same run"),
        ("seeds=[a]", "seeds = '[a]' is no list such as [1, 2, 3]"),
        ("grid.lr=1e-4", "grid.lr = 0.0001 must be a list of values, such as [1e-4, 3e-4]"),
        ("grid=3", "grid = 3 must name keys with lists of values, such as grid.lr=[1e-4, 3e-4]"),
        ("grid.lrr=[1]", "unknown key 'lrr'; did you mean 'lr'?"),
        ("per_task=3", "per_task must hold a table of keys for each task, not 3"),
        ("lr=0", "lr must be > 0, got 0.0"),
        ("layer_decay=1.2", "layer_decay must be in (0, 1], got 1.2"),
    ],
)
def test_bad_plans_are_refused_in_a_sentence(planned, override, sentence):
    with pytest.raises(InputError) as error:
        planned("task=cola", override)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("missing", "sentence"), [("model", "the recipe has no model"), ("out", "has no out")])
def test_what_a_run_needs_is_asked_for(planned, missing, sentence):
    with pytest.raises(InputError, match=sentence):
        planned("task=cola", f"{missing}=''")


def test_nothing_to_train_on_is_refused(tmp_path: Path):
    path = tmp_path / "recipe.toml"
    path.write_text('model = "x"\nout = "y"')
    with pytest.raises(InputError, match=r"nothing to train on: add task=NAME data=FOLDER, or data.train=FILE"):
        plan(read(path), {})
