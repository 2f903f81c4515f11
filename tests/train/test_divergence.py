"""A run that diverges ends with an error and never writes weights that are not finite."""

from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, train

from lightbert.errors import InputError
from lightbert.train.checkpoint import load_newest
from lightbert.train.loop import Loop


@pytest.mark.parametrize("objective", ["mlm", "rtd"])
def test_a_learning_rate_that_is_far_too_high_is_an_error_and_leaves_no_model(
    corpus: Path, tmp_path: Path, objective: str
) -> None:
    recipe = recipe_of(corpus, tmp_path, objective=objective, lr=1e30, steps=3, schedule={"warmup": 0.0})
    with pytest.raises(InputError, match=r"try a learning rate below lr=1e\+30 in another folder out="):
        train(recipe)
    assert not (tmp_path / "final").exists()
    found = load_newest(tmp_path / "checkpoints")
    assert found is None or all(tensor.isfinite().all() for tensor in found.groups["weights"].values())


def test_weights_that_are_not_finite_are_never_saved(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_on = Loop._train_on

    def spoil(loop: Loop, *rest: object) -> None:
        train_on(loop, *rest)
        if loop.at.step == 5:
            next(loop.objective.parameters()).data[0] = torch.inf

    monkeypatch.setattr(Loop, "_train_on", spoil)
    with pytest.raises(InputError, match="the weights are not finite after step 6: training has diverged"):
        train(recipe_of(corpus, tmp_path, objective="mlm", evaluate_every=0))
    assert load_newest(tmp_path / "checkpoints").facts["step"] == 3


@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_whose_last_steps_were_all_skipped_is_an_error(
    corpus: Path, tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.nn.utils.get_total_norm", lambda *_, **__: torch.tensor(float("nan")))
    with pytest.raises(InputError, match=f"the last {steps} steps were skipped: the gradients were not finite"):
        train(recipe_of(corpus, tmp_path, objective="mlm", steps=steps))
