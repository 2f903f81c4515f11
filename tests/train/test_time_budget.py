"""The length of a run: a time limit, measured with a fake clock, or epochs."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_runs import recipe_of, records, train
from torch import Tensor

from lightbert import progress
from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.train import log, loop
from lightbert.train.step import Step

ONLY_LOGS = {"log_every": 1, "evaluate_every": 0, "checkpoint_every": 0}


@pytest.fixture(autouse=True)
def _three_seconds_between_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=3.0)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: next(clock)))


def test_a_time_limit_alone_ends_a_run(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=0.5, **ONLY_LOGS)
    outcome = train(recipe)
    assert (outcome.step, outcome.finished) == (10, True)
    rates = [record["lr"] / 1e-3 for record in records(tmp_path)]
    # The first of the ten intervals of three seconds doesn't count for the speed.
    assert rates[2:] == pytest.approx([1 - step / 9 for step in range(1, 9)])


def test_slow_first_steps_do_not_skip_the_warm_up(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = itertools.chain([0.0], itertools.count(60.0, step=3.0))
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: next(compiling)))
    schedule = {"kind": "linear", "warmup": 0.5}
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=1.5, **ONLY_LOGS, schedule=schedule)
    assert train(recipe).step == 11
    rates = [record["lr"] / 1e-3 for record in records(tmp_path)]
    assert rates[1:6] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=1e-5)


def test_evaluations_count_towards_the_time_limit(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=0.5, log_every=1, evaluate_every=2, checkpoint_every=0)
    assert train(recipe).step < 10


def test_checkpoints_count_towards_the_time_limit(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=0.5, **ONLY_LOGS | {"checkpoint_every": 1})
    # Of ten intervals of three seconds, a step takes one and its checkpoint another.
    assert train(recipe).step == 5


@pytest.fixture
def steps_of_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock advance by steps only, however often it is read."""
    clock, plain = SimpleNamespace(now=0.0), Step.__call__

    def slow(self: Step, batch: Batch) -> Tensor:
        clock.now += 2.0
        return plain(self, batch)

    monkeypatch.setattr(Step, "__call__", slow)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(loop, "monotonic", lambda: clock.now)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("steps_of_two_seconds")
@pytest.mark.parametrize("minutes", [0.5, 8.0], ids=["a step per check", "several steps per check"])
def test_the_end_and_the_rates_do_not_depend_on_how_often_is_logged(
    corpus: Path, tmp_path: Path, minutes: float, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"steps": 0, "max_minutes": minutes, "schedule": {"kind": "product", "warmup": 0.2}}
    runs = []
    for log_every in (1, 7, 0):
        out = tmp_path / str(log_every)
        outcome = train(recipe_of(corpus, out, **changes, **ONLY_LOGS | {"log_every": log_every}))
        steps = int(minutes * 30)
        assert (outcome.step, outcome.finished) == (steps, True)
        assert f"training: {steps}/{steps} steps" in capsys.readouterr().err
        runs.append([record["lr"] / 1e-3 for record in records(out)])
    for rates in runs[1:]:
        # Two hundredths of the time behind at most, in a warm-up of a fifth.
        assert rates == pytest.approx(runs[0], abs=0.1)
    assert max(runs[-1]) > 0.7


def test_time_before_an_interruption_counts(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=0.5, **ONLY_LOGS)
    assert train(recipe, stop_after=7).step == 7
    assert train(recipe).step == 10


def test_the_time_limit_can_end_a_run_before_its_steps(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=1000, max_minutes=0.2, **ONLY_LOGS)
    assert train(recipe).step == 4


@pytest.mark.usefixtures("steps_of_two_seconds")
@pytest.mark.parametrize("phases", [(), ({"steps": 200, "length": 16},)], ids=["one phase", "two phases"])
def test_the_steps_that_the_time_allows_are_shown(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], phases: tuple
) -> None:
    totals = []
    plain = progress.Bar.advance
    monkeypatch.setattr(progress.Bar, "advance", lambda bar: (totals.append(bar.total), plain(bar)))
    train(recipe_of(corpus, tmp_path, steps=1000, max_minutes=2.0, phases=phases, **ONLY_LOGS))
    # Sixty steps of two seconds; the first estimates have the speed of few steps.
    assert totals[0] == 1000 + sum(each["steps"] for each in phases)
    assert all(58 <= total <= 62 for total in totals[2:])
    assert "training: 60/60 steps" in capsys.readouterr().err


def test_the_steps_can_end_a_run_before_its_time_limit(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=3, max_minutes=10.0, log_every=1)
    assert train(recipe).step == 3


def test_phases_share_the_time_limit_in_proportion_to_their_steps(corpus: Path, tmp_path: Path) -> None:
    phases = [{"length": 32, "steps": 100}]
    recipe = recipe_of(corpus, tmp_path, steps=300, phases=phases, max_minutes=0.6, **ONLY_LOGS)
    assert train(recipe).step == 12
    lengths = [record["lr"] for record in records(tmp_path)]
    # The schedule starts over with the second phase, after three quarters of the time.
    assert [step for step in range(1, 12) if lengths[step] > lengths[step - 1]][-1] in (9, 10)


def test_epochs_are_passes_over_the_corpus(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=0, epochs=2, batch=128, length=32)
    shards = Shards(corpus / "data")
    specials = Specials.of(shards.tokenizer())
    loader = Loader(shards, recipe.builder(), batch=128, length=32, specials=specials)
    assert loader.steps_per_epoch > 1
    assert train(recipe).step == 2 * loader.steps_per_epoch
