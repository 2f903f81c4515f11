"""A run killed at any point and started again gives the same bytes as an uninterrupted run."""

import signal
from functools import partial
from pathlib import Path

import pytest
from children import Moment, exit_code, start
from kills import KILL, kill_at_random, undisturbed
from tiny_runs import assert_same_results, recipe_of


@pytest.mark.parametrize("objective", ["rtd", "mlm"])
@pytest.mark.parametrize(
    "moments",
    [
        [Moment("step", 1, KILL), Moment("saving", 7, KILL), Moment("evaluating", 1, KILL)],
        [Moment("saving", 18, KILL), Moment("removing", 0, KILL), Moment("saving", 17, KILL)],
    ],
    ids=["a step, saving, evaluating", "saving, removing, the end"],
)
def test_a_run_survives_kills(corpus: Path, tmp_path: Path, objective: str, moments: list[Moment]) -> None:
    undisturbed(recipe_of(corpus, tmp_path / "undisturbed", objective=objective))
    recipe = recipe_of(corpus, tmp_path / "killed", objective=objective)
    for moment in moments:
        assert exit_code(start(recipe, moment)) == -signal.SIGKILL
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path / "killed", tmp_path / "undisturbed")
    assert list((tmp_path / "killed").rglob(".*")) == []


@pytest.mark.prove
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("objective", ["rtd", "mlm"])
def test_fifty_kills_change_nothing(
    corpus: Path, tmp_path: Path, objective: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = partial(recipe_of, corpus, objective=objective, steps=30)
    counted = kill_at_random(made, tmp_path, at_any_moment=50)
    with capsys.disabled():
        print(f"\n{objective}: {counted}")
