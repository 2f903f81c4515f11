"""A finished run keeps its models, log, recipe and result, and no optimizer state unless asked."""

import json
import signal
from pathlib import Path

import pytest
from children import Moment, exit_code, start
from tiny_runs import distillation_of, recipe_of, records, train

from lightbert.errors import InputError
from lightbert.train.settings import CorpusRecipe


def finished(corpus: Path, out: Path, verb: str, **changes: object) -> CorpusRecipe:
    make = distillation_of if verb == "distill" else recipe_of
    return make(corpus, out, keep_checkpoints=False, **changes)


@pytest.mark.parametrize("verb", ["pretrain", "distill"])
def test_a_finished_run_has_no_checkpoints(corpus: Path, tmp_path: Path, verb: str) -> None:
    train(finished(corpus, tmp_path, verb))
    models = ["final"] if verb == "distill" else ["final", "generator"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *models,
        "metrics.jsonl",
        "recipe.json",
        "result.json",
    ]


@pytest.mark.parametrize("verb", ["pretrain", "distill"])
def test_repeating_the_command_prints_that_the_run_is_finished_and_returns_its_result(
    corpus: Path, tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train(finished(corpus, tmp_path, verb))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert train(finished(corpus, tmp_path, verb)) == first
    assert f"'{tmp_path}' is already trained; set out= to another folder to train again" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_another_recipe_is_still_an_error(corpus: Path, tmp_path: Path) -> None:
    train(finished(corpus, tmp_path, "pretrain"))
    with pytest.raises(InputError, match="seed = 0, this recipe has 1"):
        train(finished(corpus, tmp_path, "pretrain", seed=1))


def test_an_interrupted_run_keeps_its_checkpoints_until_it_is_finished(corpus: Path, tmp_path: Path) -> None:
    train(finished(corpus, tmp_path, "pretrain"), stop_after=7)
    assert (tmp_path / "checkpoints" / "step-7").exists()
    assert train(finished(corpus, tmp_path, "pretrain")).step == 12
    assert not (tmp_path / "checkpoints").exists()


def test_kept_checkpoints_can_be_removed_later(corpus: Path, tmp_path: Path) -> None:
    first = train(recipe_of(corpus, tmp_path))
    assert (tmp_path / "checkpoints" / "step-12").exists()
    assert train(recipe_of(corpus, tmp_path)) == first
    assert (tmp_path / "checkpoints" / "step-12").exists()
    assert train(finished(corpus, tmp_path, "pretrain")) == first
    assert not (tmp_path / "checkpoints").exists()


def test_removing_the_model_starts_over(corpus: Path, tmp_path: Path) -> None:
    train(finished(corpus, tmp_path, "pretrain"))
    (tmp_path / "final").rename(tmp_path / "moved")
    assert train(finished(corpus, tmp_path, "pretrain", seed=1)).step == 12
    assert len(records(tmp_path)) == 12


def test_what_a_killed_process_left_of_its_checkpoints_is_removed_by_the_next_start(
    corpus: Path, tmp_path: Path
) -> None:
    train(finished(corpus, tmp_path, "pretrain"))
    left = tmp_path / ".lightbert-999999999-abc"
    (left / "checkpoints" / "step-12").mkdir(parents=True)
    (left / "lightbert.json").write_text(json.dumps({"writer": "lightbert", "pid": 999999999}))
    train(finished(corpus, tmp_path, "pretrain"))
    assert not list(tmp_path.rglob(".*"))


def test_a_damaged_result_is_an_error_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    train(finished(corpus, tmp_path, "pretrain"))
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"result\.json' is damaged; remove the folder to train again"):
        train(finished(corpus, tmp_path, "pretrain"))


def test_a_run_killed_while_it_removes_its_checkpoints_finishes_when_it_is_started_again(
    corpus: Path, tmp_path: Path
) -> None:
    # The first two removals are those of old checkpoints during training.
    moment = Moment("removing", 2, (signal.SIGKILL,))
    whole, killed = (finished(corpus, tmp_path / name, "pretrain") for name in ("whole", "killed"))
    assert exit_code(start(whole)) == 0
    assert exit_code(start(killed, moment)) == -signal.SIGKILL
    assert len(records(tmp_path / "killed")) == 12
    assert exit_code(start(killed)) == 0
    assert not (tmp_path / "killed" / "checkpoints").exists()
    assert not list((tmp_path / "killed").rglob(".*"))
    for name in ("final/model.safetensors", "generator/model.safetensors", "metrics.jsonl", "final/README.md"):
        here = (tmp_path / "killed" / name).read_bytes().replace(b"killed", b"whole")
        assert here == (tmp_path / "whole" / name).read_bytes()
