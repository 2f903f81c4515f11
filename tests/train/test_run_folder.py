"""A run writes only to a folder of its own, which it locks, and replaces only what a run wrote."""

import shutil
import signal
from pathlib import Path

import pytest
import torch
from children import Moment, exit_code, start, start_several
from tiny_runs import assert_same_results, distillation_of, recipe_of, train

from lightbert.errors import InputError
from lightbert.files import LOCK, locked
from lightbert.models import folder
from lightbert.train.distributed import World, process_group
from lightbert.train.run_folder import locked_grid, locked_run


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


@pytest.mark.parametrize("name", ["final/notes.txt", "metrics.jsonl", "recipe.json", "generator/a/b.txt"])
def test_files_of_the_user_in_the_folder_of_a_run_are_kept(corpus: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text('{"mine": 1}\n')
    before = contents(tmp_path)
    with pytest.raises(InputError, match="exists and is not from a run; set out= to another folder"):
        train(recipe_of(corpus, tmp_path, steps=3))
    assert contents(tmp_path) == before


def test_a_run_in_a_folder_of_prepared_text_is_an_error(corpus: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    shutil.copytree(corpus / "data", prepared)
    before = contents(prepared)
    with pytest.raises(InputError, match=r"out must not be a prepared folder, got '.*'; set out= to another folder"):
        train(recipe_of(corpus, prepared, steps=3))
    world = World(0, 1, torch.device("cpu"))
    with pytest.raises(InputError, match="out must not be a prepared folder"), locked_grid(prepared, world):
        pass
    assert contents(prepared) == before


def test_a_file_added_to_a_model_is_kept(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=3)
    train(recipe)
    (tmp_path / "final" / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    assert train(recipe).finished
    assert contents(tmp_path) == before
    (tmp_path / "result.json").unlink()
    with pytest.raises(InputError, match=r"final' contains 'notes\.txt', which lightbert did not write"):
        train(recipe)
    assert (tmp_path / "final" / "notes.txt").read_text() == "mine"


def test_a_run_does_not_replace_the_model_that_it_starts_from(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "model", tmp_path / "final")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"model '.*final' is in the folder of the run, '.*', which would replace it"):
        train(recipe_of(corpus, tmp_path, steps=3, model=str(tmp_path / "final")))
    shutil.copytree(corpus / "teacher", tmp_path / "teacher")
    with pytest.raises(InputError, match=r"teacher '.*' is in the folder of the run"):
        train(distillation_of(corpus, tmp_path, teacher=str(tmp_path / "teacher")))
    shutil.rmtree(tmp_path / "teacher")
    assert contents(tmp_path) == before


def test_folders_that_look_like_checkpoints_or_leftovers_are_kept(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=6)
    train(recipe, stop_after=3)
    mine = [tmp_path / "checkpoints" / "step-99x" / "a.txt", tmp_path / ".notes.tmp-dir" / "a.txt"]
    mine += [tmp_path / ".diary.old-17" / "a.txt", tmp_path / ".thesis.tmp-17"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    train(recipe)
    assert all(path.read_text() == "mine" for path in mine)


def test_a_start_that_fails_before_anything_is_written_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError), process_group("cpu") as world, locked_run(tmp_path / "deep" / "out", world):
        raise InputError("bad data")
    assert list(tmp_path.iterdir()) == []


def test_a_locked_folder_is_not_touched_by_a_second_run(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=6)
    train(recipe, stop_after=3)
    with locked(tmp_path, "is training in", "wait"):
        before = contents(tmp_path)
        assert exit_code(start(recipe)) == 1
        after = contents(tmp_path)
        assert after.keys() - before.keys() == {"stderr"}
        assert all(after[name] == content for name, content in before.items())
    assert "is training in" in (tmp_path / "stderr").read_text()


def test_several_processes_lock_once_and_all_stop_if_the_folder_is_in_use(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=6)
    with locked(tmp_path, "is training in", "wait"):
        assert [exit_code(process) for process in start_several(2, recipe)] == [1, 1]
    assert [exit_code(process) for process in start_several(2, recipe)] == [0, 0]
    assert not (tmp_path / LOCK).exists()


def test_two_and_three_simultaneous_starts_train_once_and_the_result_is_that_of_one(
    corpus: Path, tmp_path: Path
) -> None:
    assert exit_code(start(recipe_of(corpus, tmp_path / "alone"))) == 0
    for count in (2, 3):
        out = tmp_path / str(count)
        codes = [exit_code(process) for process in [start(recipe_of(corpus, out)) for _ in range(count)]]
        assert sorted(codes)[0] == 0
        assert set(codes) <= {0, 1}
        assert_same_results(out, tmp_path / "alone")


def test_a_killed_run_releases_its_folder(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=6)
    assert exit_code(start(recipe, Moment("step", 4, (signal.SIGKILL,)))) == -signal.SIGKILL
    assert (tmp_path / LOCK).exists()
    assert exit_code(start(recipe)) == 0
    assert not (tmp_path / LOCK).exists()
    folder.load(tmp_path / "final")


def test_the_vocabulary_can_not_be_changed(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"change\.vocab can't be set: the data determines the vocabulary"):
        train(recipe_of(corpus, tmp_path, change={"vocab": 5}))
