"""A run killed at any point and started again gives the same bytes as an uninterrupted run."""

import random
import signal
import time
from pathlib import Path

import pytest
from children import Moment, exit_code, start
from tiny_runs import assert_same_results, recipe_of

from lightbert.train.recipe import Recipe

KILL = (signal.SIGKILL,)


def undisturbed(recipe: Recipe) -> float:
    """Run to the end and return the elapsed seconds."""
    began = time.monotonic()
    assert exit_code(start(recipe)) == 0
    return time.monotonic() - began


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
    changes = {"objective": objective, "steps": 30}
    undisturbed(recipe_of(corpus, tmp_path / "undisturbed", **changes))
    # Repeated, because the first run had to wait for the fork server.
    seconds = undisturbed(recipe_of(corpus, tmp_path / "again", **changes))
    assert_same_results(tmp_path / "again", tmp_path / "undisturbed")
    choose = random.Random(0)
    kills = dict.fromkeys(("any moment", "step", "saving", "evaluating", "removing"), 0)
    runs = 0
    while kills["any moment"] < 50 or runs < 2:
        out = tmp_path / f"killed-{runs}"
        recipe = recipe_of(corpus, out, **changes)
        finished = False
        while not finished:
            (what,) = choose.choices(list(kills), [6, 1, 1, 1, 1])
            if what == "any moment":
                process = start(recipe)
                process.join(choose.uniform(0, 0.8 * seconds))
                process.kill()
            else:
                most = {"step": 12, "saving": 60, "evaluating": 6, "removing": 4}[what]
                process = start(recipe, Moment(what, choose.randrange(most), KILL))
            ended = exit_code(process)
            assert ended in (0, -signal.SIGKILL)
            finished = ended == 0
            kills[what] += not finished
        runs += 1
        assert_same_results(out, tmp_path / "undisturbed")
    where = ", ".join(f"{count} at {what}" for what, count in kills.items())
    with capsys.disabled():
        print(f"\n{objective}: {sum(kills.values())} kills ({where}) in {runs} runs: final bytes the same")
