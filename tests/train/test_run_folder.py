"""The folder of a run: its lock, its recipe, its data and its result; only what a run wrote is replaced."""

import json
import random
import shutil
import signal

import pytest
import torch
from children import Moment, exit_code, start, start_several
from tiny_runs import assert_same_results, distillation_of, recipe_of, records, results, train

from lightbert.data.preparation import Settings, prepare
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import LOCK, locked, read_tensors
from lightbert.models import add_head, folder
from lightbert.train.distributed import World, process_group
from lightbert.train.run_folder import check_grid_folder, locked_run

KILL = (signal.SIGKILL,)


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def times(path):
    return {file: file.stat().st_mtime_ns for file in path.rglob("*")}


# Files of the user


def test_files_of_the_user_in_the_folder_of_a_run_are_kept(corpus, tmp_path):
    for name in ("final/notes.txt", "metrics.jsonl", "recipe.json", "generator/a/b.txt"):
        out = tmp_path / name.replace("/", "-")
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text('{"mine": 1}\n')
        with pytest.raises(InputError, match="exists and is not from a run; set out= to another folder"):
            train(recipe_of(corpus, out, steps=3))
        assert contents(out) == {name: b'{"mine": 1}\n'}


def test_a_run_in_a_folder_of_prepared_text_is_an_error(corpus, tmp_path):
    prepared = tmp_path / "prepared"
    shutil.copytree(corpus / "data", prepared)
    before = contents(prepared)
    with pytest.raises(InputError, match=r"out must not be a prepared folder, got '.*'; set out= to another folder"):
        train(recipe_of(corpus, prepared, steps=3))
    world = World(0, 1, torch.device("cpu"))
    wrong = pytest.raises(InputError, match="out must not be a prepared folder")
    with wrong, locked_run(prepared, world, check_grid_folder):
        pass
    assert contents(prepared) == before


def test_a_file_added_to_a_model_is_kept(corpus, tmp_path):
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


def test_a_run_does_not_replace_the_models_that_it_reads(corpus, tmp_path):
    shutil.copytree(corpus / "model", tmp_path / "final")
    shutil.copytree(corpus / "teacher", tmp_path / "teacher")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"model '.*final' is in the folder of the run, '.*', which would replace it"):
        train(recipe_of(corpus, tmp_path, steps=3, model=str(tmp_path / "final")))
    with pytest.raises(InputError, match=r"teacher '.*' is in the folder of the run"):
        train(distillation_of(corpus, tmp_path, teacher=str(tmp_path / "teacher")))
    assert contents(tmp_path) == before


def test_folders_that_look_like_checkpoints_or_leftovers_are_kept(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=6)
    train(recipe, stop_after=3)
    mine = [tmp_path / "checkpoints" / "step-99x" / "a.txt", tmp_path / ".notes.tmp-dir" / "a.txt"]
    mine += [tmp_path / ".diary.old-17" / "a.txt", tmp_path / ".thesis.tmp-17"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    train(recipe)
    assert all(path.read_text() == "mine" for path in mine)


def test_a_start_that_fails_before_anything_is_written_leaves_no_folder(tmp_path):
    with pytest.raises(InputError), process_group("cpu") as world, locked_run(tmp_path / "deep" / "out", world):
        raise InputError("bad data")
    assert list(tmp_path.iterdir()) == []


# Locks


def test_a_locked_folder_is_not_touched_by_one_or_two_other_processes(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=6)
    train(recipe, stop_after=3)
    with locked(tmp_path, "is training in", "wait"):
        before = contents(tmp_path)
        assert exit_code(start(recipe)) == 1
        assert [exit_code(process) for process in start_several(2, recipe)] == [1, 1]
        after = contents(tmp_path)
        assert after.keys() - before.keys() == {"stderr"}
        assert all(after[name] == content for name, content in before.items())
    assert "is training in" in (tmp_path / "stderr").read_text()
    assert [exit_code(process) for process in start_several(2, recipe)] == [0, 0]
    assert not (tmp_path / LOCK).exists()


def test_two_and_three_simultaneous_starts_train_once_and_the_result_is_that_of_one(corpus, tmp_path):
    assert exit_code(start(recipe_of(corpus, tmp_path / "alone", steps=6))) == 0
    for count in (2, 3):
        recipe = recipe_of(corpus, tmp_path / str(count), steps=6)
        codes = [exit_code(process) for process in [start(recipe) for _ in range(count)]]
        assert min(codes) == 0
        assert set(codes) <= {0, 1}
        assert_same_results(tmp_path / str(count), tmp_path / "alone")


def test_a_killed_run_releases_its_folder(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=6)
    assert exit_code(start(recipe, Moment("step", 4, KILL))) == -signal.SIGKILL
    assert (tmp_path / LOCK).exists()
    assert exit_code(start(recipe)) == 0
    assert not (tmp_path / LOCK).exists()
    folder.load(tmp_path / "final")


# Recipes and data


def test_a_run_with_a_checkpoint_rejects_another_recipe(corpus, tmp_path):
    # Before the first checkpoint, the recipe may change.
    with pytest.raises(InputError, match="must be a multiple of accumulate"):
        train(recipe_of(corpus, tmp_path, steps=3, accumulate=3))
    train(recipe_of(corpus, tmp_path, steps=3, seed=1))
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 1
    with pytest.raises(InputError, match="seed = 1, this recipe has 0"):
        train(recipe_of(corpus, tmp_path, steps=3))
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(InputError, match=r"recipe\.json' is damaged; remove it to resume with this recipe"):
        train(recipe_of(corpus, tmp_path, steps=3))


def test_the_vocabulary_can_not_be_changed(corpus, tmp_path):
    with pytest.raises(InputError, match=r"change\.vocab can't be set: the data determines the vocabulary"):
        train(recipe_of(corpus, tmp_path, change={"vocab": 5}))


def prepare_again(corpus):
    """Replace the prepared folder by one of the same documents in another order, with the same tokenizer."""
    documents = (corpus / "text.txt").read_text().split("\n\n")
    random.Random(1).shuffle(documents)
    (corpus / "text.txt").write_text("\n\n".join(documents))
    settings = Settings(sources=(str(corpus / "text.txt"),), tokenizer=str(corpus / "data"), held_out=0.1)
    prepare(settings, corpus / "data", workers=1, again=True)


def test_a_prepared_folder_with_other_text_stops_an_interrupted_run_and_a_copy_does_not(corpus, tmp_path):
    copy = shutil.copytree(corpus, tmp_path / "corpus")
    runs = {name: make(copy, tmp_path / name) for name, make in (("a", recipe_of), ("b", distillation_of))}
    runs["moved"] = recipe_of(copy, tmp_path / "moved")
    for recipe in runs.values():
        train(recipe, stop_after=3)
    shutil.move(copy / "data", copy / "elsewhere")
    shutil.copytree(copy / "elsewhere", copy / "data")
    assert train(runs.pop("moved")).finished
    prepare_again(copy)
    for recipe in runs.values():
        with pytest.raises(InputError, match=r"the data of the run in '.*' has changed since the run was .*; restore"):
            train(recipe)


def test_runs_of_earlier_versions_resume(corpus, tmp_path):
    for graphed in (True, False):
        out = tmp_path / str(graphed)
        recipe = recipe_of(corpus, out, steps=6)
        train(recipe, stop_after=3)
        saved = json.loads((out / "recipe.json").read_text()) | {"cuda_graph": graphed, "compile": "none"}
        del saved["data_content"]
        (out / "recipe.json").write_text(json.dumps(saved))
        assert train(recipe).finished


# Results


def test_a_finished_run_keeps_no_checkpoints_and_repeating_its_command_changes_nothing(corpus, tmp_path, capsys):
    for make, models in ((recipe_of, ["final", "generator"]), (distillation_of, ["final"])):
        out = tmp_path / make.__name__
        recipe = make(corpus, out, keep_checkpoints=False)
        first = train(recipe)
        assert sorted(path.name for path in out.iterdir()) == [*models, "metrics.jsonl", "recipe.json", "result.json"]
        before = times(out)
        assert train(recipe) == first
        assert times(out) == before
        assert f"'{out}' is already trained; set out= to another folder to train again" in capsys.readouterr().err
        with pytest.raises(InputError, match="seed = 0, this recipe has 1"):
            train(make(corpus, out, keep_checkpoints=False, seed=1))
    (out / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"result\.json' is damaged; remove the folder to train again"):
        train(recipe)


def test_kept_checkpoints_are_written_once_and_can_be_removed_later(corpus, tmp_path):
    first = train(recipe_of(corpus, tmp_path, steps=6, evaluate_every=3))
    assert [record["step"] for record in records(tmp_path, "held-out")] == [3, 6]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-3", "step-6"]
    assert not list(tmp_path.rglob(".*"))
    before, written = results(tmp_path), times(tmp_path / "checkpoints")
    assert train(recipe_of(corpus, tmp_path, steps=6, evaluate_every=3)) == first
    assert (results(tmp_path), times(tmp_path / "checkpoints")) == (before, written)
    recipe = recipe_of(corpus, tmp_path, steps=6, evaluate_every=3, keep_checkpoints=False)
    assert train(recipe) == first
    assert not (tmp_path / "checkpoints").exists()
    # What a killed process left is removed by the next start.
    left = tmp_path / ".lightbert-999999999-abc"
    (left / "checkpoints" / "step-6").mkdir(parents=True)
    (left / "lightbert.json").write_text(json.dumps({"writer": "lightbert", "pid": 999999999}))
    train(recipe)
    assert not list(tmp_path.rglob(".*"))


def test_an_interrupted_run_keeps_its_checkpoints_until_it_is_finished(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, keep_checkpoints=False)
    train(recipe, stop_after=7)
    assert (tmp_path / "checkpoints" / "step-7").exists()
    assert train(recipe).step == 12
    assert not (tmp_path / "checkpoints").exists()
    # Without its model, it starts over.
    (tmp_path / "final").rename(tmp_path / "moved")
    assert train(recipe_of(corpus, tmp_path, keep_checkpoints=False, seed=1)).step == 12
    assert len(records(tmp_path)) == 12


def test_a_run_killed_while_it_removes_its_checkpoints_finishes_when_it_is_started_again(corpus, tmp_path):
    # The first two removals are those of old checkpoints during training.
    moment = Moment("removing", 2, KILL)
    whole, killed = (recipe_of(corpus, tmp_path / name, keep_checkpoints=False) for name in ("whole", "killed"))
    assert exit_code(start(whole)) == 0
    assert exit_code(start(killed, moment)) == -signal.SIGKILL
    assert len(records(tmp_path / "killed")) == 12
    assert exit_code(start(killed)) == 0
    assert not (tmp_path / "killed" / "checkpoints").exists()
    assert not list((tmp_path / "killed").rglob(".*"))
    for name in ("final/model.safetensors", "generator/model.safetensors", "metrics.jsonl", "final/README.md"):
        here = (tmp_path / "killed" / name).read_bytes().replace(b"killed", b"whole")
        assert here == (tmp_path / "whole" / name).read_bytes()


def test_every_optimizer_resumes_exactly_and_leaves_heads_that_the_objective_does_not_use(corpus, tmp_path):
    model = folder.load(corpus / "model")
    for name in ("pooler", "rtd"):
        add_head(model, name)
    folder.save(model, tmp_path / "model", tokenizer=Shards(corpus / "data").tokenizer())
    before = read_tensors(tmp_path / "model" / "model.safetensors")
    for kind in ("adamw", "lamb", "muon"):
        settings = {"steps": 4, "optimizer": {"kind": kind}, "objective": "mlm", "model": str(tmp_path / "model")}
        whole, parts = tmp_path / kind / "whole", tmp_path / kind / "parts"
        train(recipe_of(corpus, whole, **settings))
        train(recipe_of(corpus, parts, **settings), stop_after=2)
        train(recipe_of(corpus, parts, **settings))
        assert results(parts) == results(whole), kind
        after = read_tensors(whole / "final" / "model.safetensors")
        untouched = {name for name in before if torch.equal(before[name], after[name])}
        assert untouched == {name for name in before if name.startswith(("heads.pooler", "heads.rtd"))}, kind
