"""A run can end with the weights that did best on held-out text, however often it was interrupted."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, records, train

from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.train import corpus_run
from lightbert.train.checkpoint import newest
from lightbert.train.recipe import Recipe
from lightbert.train.run import Outcome

_settings = corpus_run.settings_of


def train_for(best: str, recipe: Recipe, stop_after: int = 0) -> Outcome:
    """Train with a number to be best at, which no pre-training recipe asks for."""
    chosen = mock.patch.object(corpus_run, "settings_of", lambda *args: replace(_settings(*args), best=best))
    with chosen:
        return train(recipe, stop_after)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return folder.load(out / "final").state_dict()


# A rate so high that the loss rises again.
RISING = {"lr": 0.3, "steps": 9, "evaluate_every": 2, "checkpoint_every": 3}


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("best")
    train_for("mlm_loss", recipe_of(corpus, out, **RISING))
    return out


def test_the_weights_are_those_of_the_lowest_loss(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    found = {record["step"]: record["mlm_loss"] for record in records(undisturbed, "held-out")}
    best = min(found, key=lambda step: found[step])
    assert best != 9
    train(recipe_of(corpus, tmp_path, **RISING), stop_after=best)
    stopped = newest(tmp_path / "checkpoints")
    assert stopped is not None
    blocks = {name: value for name, value in weights(undisturbed).items() if name.startswith("blocks.")}
    assert blocks
    assert all(torch.equal(blocks[name], stopped.groups["weights"][f"discriminator.{name}"]) for name in blocks)


def test_the_outcome_has_the_numbers_of_the_best_step(corpus: Path, undisturbed: Path) -> None:
    found = {record["step"]: record["mlm_loss"] for record in records(undisturbed, "held-out")}
    outcome = train_for("mlm_loss", recipe_of(corpus, undisturbed, **RISING))
    assert outcome.held_out["mlm_loss"] == min(found.values()) == found[outcome.best_step]


@pytest.mark.parametrize("stop", [2, 5, 8])
def test_an_interrupted_run_remembers_its_best(corpus: Path, undisturbed: Path, tmp_path: Path, stop: int) -> None:
    recipe = recipe_of(corpus, tmp_path, **RISING)
    assert not train_for("mlm_loss", recipe, stop_after=stop).finished
    assert train_for("mlm_loss", recipe).finished
    assert_same_results(tmp_path, undisturbed)


def test_other_numbers_are_best_when_they_are_highest(corpus: Path, tmp_path: Path) -> None:
    outcome = train_for("rtd_accuracy", recipe_of(corpus, tmp_path, **RISING))
    found = {record["step"]: record["rtd_accuracy"] for record in records(tmp_path, "held-out")}
    assert outcome.held_out["rtd_accuracy"] == max(found.values())


def test_a_number_that_is_not_measured_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown held-out number 'mlm_lost'; did you mean 'mlm_loss'"):
        train_for("mlm_lost", recipe_of(corpus, tmp_path, **RISING))
