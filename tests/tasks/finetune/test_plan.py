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


def folders(made: Plan) -> list[str]:
    return [Path(run.recipe.out).name for run in made.runs]


@pytest.mark.parametrize(
    ("grid", "start"),
    [
        ('data.label_separator=[";", "|"]', "data.label_separator--"),
        ('model=["mm/a/b", "mm/a-b"]', "model-mm-a-b"),
    ],
)
def test_values_that_differ_in_replaced_characters_have_different_folders(planned, grid, start):
    names = folders(planned("task=cola", "seeds=[1, 23]", f"grid.{grid}"))
    hashes = [name.removeprefix(f"{start}_").split("_")[0] for name in names]
    assert names == [f"{start}_{digest}_seed-{seed}" for digest, seed in zip(hashes, [1, 23, 1, 23], strict=True)]
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]


def test_only_names_that_are_not_unique_contain_a_hash(planned):
    names = folders(planned("task=cola", 'grid.model=["mm/a/b", "mm/a-b", "mm/c"]'))
    assert names[2] == "model-mm-c_seed-0"
    assert len(set(names)) == 3


@pytest.mark.parametrize("letter", ["x", "é"])
def test_names_of_long_values_fit_into_a_file_system(planned, tmp_path: Path, letter):
    shared = f"{letter * 150}/{letter * 149}"
    names = folders(planned("task=cola", f'grid.model=["{shared}a", "{shared}b"]', "seeds=[1, 2]"))
    assert len(set(names)) == 4
    for name in names:
        (tmp_path / name).mkdir()


def test_the_longest_name_that_fits_has_no_hash(planned):
    longest = "x" * (255 - len("model-_seed-0"))
    exact, longer = folders(planned("task=cola", f'grid.model=["{longest}", "{longest}x"]'))
    assert exact == f"model-{longest}_seed-0"
    assert len(longer) == 255


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
        ("grid.lr=[1e-3, 0.001]", "grid.lr must not contain duplicates, got 0.001 more than once; list it once"),
        (
            "grid.optimizer.weight_decay=[0, 0.1, 0.0]",
            "grid.optimizer.weight_decay must not contain duplicates, got 0.0 more than once; list it once",
        ),
        ('grid.model=["a", "b", "a"]', "grid.model must not contain duplicates, got 'a' more than once; list it once"),
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
