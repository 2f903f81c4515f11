"""SIGTERM and SIGINT at any point: the run saves, exits with 75, and resumes to the same bytes."""

import signal
from pathlib import Path

import pytest
from children import Moment, exit_code, start
from tiny_runs import assert_same_results, recipe_of

from lightbert.train.checkpoint import load_newest

TERM, INT = (signal.SIGTERM,), (signal.SIGINT,)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    assert exit_code(start(recipe_of(corpus, out))) == 0
    return out


@pytest.mark.parametrize(
    ("moment", "saved_at"),
    [
        (Moment("step", 0, TERM), 1),
        (Moment("step", 6, INT), 7),
        (Moment("evaluating", 0, TERM), 5),
        (Moment("evaluating", 3, INT), 10),
        # The first four are the recipe and the log, the fourteen after them the first checkpoint.
        (Moment("saving", 5, TERM), 4),
        (Moment("saving", 17, INT), 4),
        (Moment("removing", 0, TERM), 10),
        (Moment("step", 11, TERM), 12),
    ],
    ids=str,
)
def test_an_interrupted_run_saves_and_resumes_exactly(
    corpus: Path, undisturbed: Path, tmp_path: Path, moment: Moment, saved_at: int
) -> None:
    recipe = recipe_of(corpus, tmp_path)
    assert exit_code(start(recipe, moment)) == 75
    assert load_newest(tmp_path / "checkpoints").facts["step"] == saved_at
    assert "interrupted: saving" in (tmp_path / "stderr").read_text()
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.parametrize("what", ["step", "evaluating", "saving"])
def test_a_second_signal_exits_at_once_and_loses_only_the_steps_since_the_checkpoint(
    corpus: Path, undisturbed: Path, tmp_path: Path, what: str
) -> None:
    recipe = recipe_of(corpus, tmp_path)
    number = {"step": 4, "evaluating": 1, "saving": 25}[what]
    both = Moment(what, number, (signal.SIGINT, signal.SIGTERM))
    assert exit_code(start(recipe, both)) == 128 + signal.SIGTERM
    assert load_newest(tmp_path / "checkpoints").facts["step"] == 3
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path, undisturbed)


def test_a_signal_after_the_last_step_does_not_stop_a_finished_run(
    corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    # The third evaluation is the last one.
    assert exit_code(start(recipe_of(corpus, tmp_path), Moment("evaluating", 4, TERM))) == 0
    assert_same_results(tmp_path, undisturbed)
