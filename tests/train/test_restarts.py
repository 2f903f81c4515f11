"""Starting a run again: after its end, with another recipe, and from a folder that has other heads."""

import json
from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, records, results, train

from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import read_tensors
from lightbert.models import add_head, folder


def test_repeating_the_command_of_a_finished_run_changes_nothing_and_reports_the_same(
    corpus: Path, tmp_path: Path
) -> None:
    first = train(recipe_of(corpus, tmp_path, steps=5))
    before = results(tmp_path)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    second = train(recipe_of(corpus, tmp_path, steps=5))
    assert results(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")} == written
    assert (second.step, second.finished, second.held_out) == (first.step, True, first.held_out)


def test_the_last_step_is_saved_and_evaluated_only_once(corpus: Path, tmp_path: Path) -> None:
    train(recipe_of(corpus, tmp_path, steps=6, checkpoint_every=3, evaluate_every=3))
    assert [record["step"] for record in records(tmp_path, "held-out")] == [3, 6]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-3", "step-6"]


def test_a_finished_run_leaves_no_partial_files(corpus: Path, tmp_path: Path) -> None:
    train(recipe_of(corpus, tmp_path, steps=3))
    assert [path for path in tmp_path.rglob(".*") if path.name not in (".", "..")] == []


def test_a_run_with_a_checkpoint_rejects_another_recipe(corpus: Path, tmp_path: Path) -> None:
    train(recipe_of(corpus, tmp_path, steps=3))
    with pytest.raises(InputError, match="seed = 0, this recipe has 1"):
        train(recipe_of(corpus, tmp_path, steps=3, seed=1))


def test_the_recipe_of_a_run_without_checkpoints_may_change(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a multiple of accumulate"):
        train(recipe_of(corpus, tmp_path, steps=3, accumulate=3))
    train(recipe_of(corpus, tmp_path, steps=3, seed=1))
    assert json.loads((tmp_path / "recipe.json").read_text())["seed"] == 1


def test_a_damaged_recipe_is_reported_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    train(recipe_of(corpus, tmp_path, steps=3))
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(InputError, match=r"recipe\.json' is damaged; remove it to resume with this recipe"):
        train(recipe_of(corpus, tmp_path, steps=3))


@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
def test_every_optimizer_resumes_exactly(corpus: Path, tmp_path: Path, kind: str) -> None:
    settings = {"steps": 4, "optimizer": {"kind": kind}, "objective": "mlm"}
    train(recipe_of(corpus, tmp_path / "whole", **settings))
    train(recipe_of(corpus, tmp_path / "parts", **settings), stop_after=2)
    train(recipe_of(corpus, tmp_path / "parts", **settings))
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_heads_that_the_objective_does_not_use_are_unchanged(corpus: Path, tmp_path: Path, kind: str) -> None:
    model = folder.load(corpus / "model")
    for name in ("pooler", "mlm"):
        add_head(model, name)
    folder.save(model, tmp_path / "model", tokenizer=Shards(corpus / "data").tokenizer())
    changes = {"model": str(tmp_path / "model"), "steps": 2, "optimizer": {"kind": kind}}
    train(recipe_of(corpus, tmp_path / "out", **changes))
    before, after = (read_tensors(path / "model.safetensors") for path in (tmp_path / "model", tmp_path / "out/final"))
    untouched = {name for name in before if torch.equal(before[name], after[name])}
    assert untouched == {name for name in before if name.startswith(("heads.pooler", "heads.mlm"))}
