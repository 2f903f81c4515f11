"""A run can keep the weights with the best held-out metric, also if it is interrupted."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, records, train

from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.train import corpus_run
from lightbert.train.checkpoint import load_newest, rank_key
from lightbert.train.loop import Loop
from lightbert.train.settings import Recipe
from lightbert.train.step import Outcome

_settings, _evaluate = corpus_run.make_settings, Loop._evaluate
# The held-out metrics by step, chosen so that the best ones are neither the first nor the last.
LOSSES = {2: 5.0, 4: 3.0, 6: 4.0, 8: 3.5, 9: 3.25}
ACCURACIES = {2: 0.5, 4: 0.6, 6: 0.8, 8: 0.7, 9: 0.75}
STEPS = {"steps": 9, "evaluate_every": 2, "checkpoint_every": 3}


def evaluate_as_planned(loop: Loop) -> None:
    """Evaluate with the metrics above instead of real ones, which differ between machines."""
    loop.measure = lambda _: {"mlm_loss": LOSSES[loop.at.step], "rtd_accuracy": ACCURACIES[loop.at.step]}
    _evaluate(loop)


def train_for(best: str, recipe: Recipe, stop_after: int = 0) -> Outcome:
    """Train with a metric that selects the best weights, which pre-training recipes don't have."""
    chosen = mock.patch.object(corpus_run, "make_settings", lambda *args: replace(_settings(*args), best=best))
    with chosen, mock.patch.object(Loop, "_evaluate", evaluate_as_planned):
        return train(recipe, stop_after)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return folder.load(out / "final").state_dict()


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("best")
    train_for("mlm_loss", recipe_of(corpus, out, **STEPS))
    return out


def test_the_final_weights_are_those_of_the_lowest_loss(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    assert {record["step"]: record["mlm_loss"] for record in records(undisturbed, "held-out")} == LOSSES
    train(recipe_of(corpus, tmp_path, **STEPS), stop_after=4)
    stopped = load_newest(tmp_path / "checkpoints")
    assert stopped is not None
    blocks = {name: value for name, value in weights(undisturbed).items() if name.startswith("blocks.")}
    assert blocks
    assert all(torch.equal(blocks[name], stopped.groups["weights"][f"discriminator.{name}"]) for name in blocks)


def test_the_outcome_has_the_metrics_of_the_best_step(corpus: Path, undisturbed: Path) -> None:
    outcome = train_for("mlm_loss", recipe_of(corpus, undisturbed, **STEPS))
    assert (outcome.best_step, outcome.held_out["mlm_loss"]) == (4, 3.0)


@pytest.mark.parametrize("stop", [2, 5, 8])
def test_a_resumed_run_restores_its_best_weights(corpus: Path, undisturbed: Path, tmp_path: Path, stop: int) -> None:
    recipe = recipe_of(corpus, tmp_path, **STEPS)
    assert not train_for("mlm_loss", recipe, stop_after=stop).finished
    assert train_for("mlm_loss", recipe).finished
    assert_same_results(tmp_path, undisturbed)


def test_higher_is_better_for_metrics_other_than_losses(corpus: Path, tmp_path: Path) -> None:
    outcome = train_for("rtd_accuracy", recipe_of(corpus, tmp_path, **STEPS))
    assert (outcome.best_step, outcome.held_out["rtd_accuracy"]) == (6, 0.8)


def test_an_unknown_metric_raises_an_error(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown held-out metric 'mlm_lost'; did you mean 'mlm_loss'"):
        train_for("mlm_lost", recipe_of(corpus, tmp_path, **STEPS))


def test_a_metric_that_is_not_a_number_is_never_the_best(corpus: Path, tmp_path: Path) -> None:
    nan = float("nan")
    with mock.patch.dict(LOSSES, {2: nan, 6: nan}):
        assert train_for("mlm_loss", recipe_of(corpus, tmp_path, **STEPS)).best_step == 4
    with mock.patch.dict(LOSSES, dict.fromkeys(LOSSES, nan)), pytest.raises(InputError, match="training has diverged"):
        train_for("mlm_loss", recipe_of(corpus, tmp_path / "all", **STEPS))
    assert max([nan, 1.0, 2.0], key=lambda value: rank_key("accuracy", value)) == 2.0
    assert min([nan, 1.0, 2.0], key=lambda value: -rank_key("mse", value)) == 1.0
