"""The length of a run: a time limit, measured with a fake clock, or epochs."""

import itertools
from types import SimpleNamespace

import pytest
from tiny_runs import recipe_of, records, train

from lightbert import progress
from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.train import log, loop
from lightbert.train.step import Step

ONLY_LOGS = {"log_every": 1, "evaluate_every": 0, "checkpoint_every": 0}


@pytest.fixture(autouse=True)
def _three_seconds_between_looks_at_the_clock(monkeypatch):
    clock = itertools.count(step=3.0)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: next(clock)))


def test_a_time_limit_alone_ends_a_run(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=0.5, **ONLY_LOGS)
    outcome = train(recipe)
    assert (outcome.step, outcome.finished) == (10, True)
    rates = [record["lr"] / 1e-3 for record in records(tmp_path)]
    # The first of the ten intervals of three seconds doesn't count for the speed.
    assert rates[2:] == pytest.approx([1 - step / 9 for step in range(1, 9)])


def test_slow_first_steps_do_not_skip_the_warm_up(corpus, tmp_path, monkeypatch):
    compiling = itertools.chain([0.0], itertools.count(60.0, step=3.0))
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: next(compiling)))
    schedule = {"kind": "linear", "warmup": 0.5}
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=1.5, **ONLY_LOGS, schedule=schedule)
    assert train(recipe).step == 11
    rates = [record["lr"] / 1e-3 for record in records(tmp_path)]
    assert rates[1:6] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=1e-5)


def test_evaluations_and_checkpoints_count_towards_the_time_limit(corpus, tmp_path):
    timed = {"steps": 0, "max_minutes": 0.5, "log_every": 1}
    recipe = recipe_of(corpus, tmp_path / "evaluations", **timed, evaluate_every=2, checkpoint_every=0)
    assert train(recipe).step < 10
    # Of ten intervals of three seconds, a step takes one and its checkpoint another.
    recipe = recipe_of(corpus, tmp_path / "checkpoints", **timed, evaluate_every=0, checkpoint_every=1)
    assert train(recipe).step == 5


def test_time_before_an_interruption_counts(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=0, max_minutes=0.5, **ONLY_LOGS)
    assert train(recipe, stop_after=7).step == 7
    assert train(recipe).step == 10


def test_a_run_ends_by_its_steps_or_its_time_whichever_comes_first(corpus, tmp_path):
    for steps, minutes, end in ((1000, 0.2, 4), (3, 10.0, 3)):
        recipe = recipe_of(corpus, tmp_path / str(steps), steps=steps, max_minutes=minutes, **ONLY_LOGS)
        assert train(recipe).step == end


@pytest.fixture
def steps_of_two_seconds(monkeypatch):
    """Let the clock advance by steps only, however often it is read."""
    clock, plain = SimpleNamespace(now=0.0), Step.__call__

    def slow(self, batch):
        clock.now += 2.0
        return plain(self, batch)

    monkeypatch.setattr(Step, "__call__", slow)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(loop, "monotonic", lambda: clock.now)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("steps_of_two_seconds")
@pytest.mark.parametrize(("minutes", "log_every"), [(0.5, 7), (4.0, 0)], ids=["a step per check", "several steps"])
def test_the_end_and_the_rates_do_not_depend_on_how_often_is_logged(corpus, tmp_path, minutes, log_every, capsys):
    changes = {"steps": 0, "max_minutes": minutes, "schedule": {"kind": "product", "warmup": 0.2}}
    runs = []
    for every in (1, log_every):
        out = tmp_path / str(every)
        outcome = train(recipe_of(corpus, out, **changes, **ONLY_LOGS | {"log_every": every}))
        steps = int(minutes * 30)
        assert (outcome.step, outcome.finished) == (steps, True)
        assert f"training: {steps}/{steps} steps" in capsys.readouterr().err
        runs.append([record["lr"] / 1e-3 for record in records(out)])
    # Two hundredths of the time behind at most, in a warm-up of a fifth.
    assert runs[1] == pytest.approx(runs[0], abs=0.1)
    assert max(runs[1]) > 0.7


@pytest.mark.usefixtures("steps_of_two_seconds")
@pytest.mark.parametrize("phases", [(), ({"steps": 200, "length": 16},)], ids=["one phase", "two phases"])
def test_the_steps_that_the_time_allows_are_shown(corpus, tmp_path, monkeypatch, capsys, phases):
    totals = []
    plain = progress.Bar.advance
    monkeypatch.setattr(progress.Bar, "advance", lambda bar: (totals.append(bar.total), plain(bar)))
    train(recipe_of(corpus, tmp_path, steps=1000, max_minutes=2.0, phases=phases, **ONLY_LOGS))
    # Sixty steps of two seconds; the first estimates have the speed of few steps.
    assert totals[0] == 1000 + sum(phase["steps"] for phase in phases)
    assert all(58 <= total <= 62 for total in totals[2:])
    assert "training: 60/60 steps" in capsys.readouterr().err


def test_phases_share_the_time_limit_in_proportion_to_their_steps(corpus, tmp_path):
    phases = [{"length": 32, "steps": 100}]
    recipe = recipe_of(corpus, tmp_path, steps=300, phases=phases, max_minutes=0.6, **ONLY_LOGS)
    assert train(recipe).step == 12
    rates = [record["lr"] for record in records(tmp_path)]
    # The schedule starts over with the second phase, after three quarters of the time.
    assert [step for step in range(1, 12) if rates[step] > rates[step - 1]][-1] in (9, 10)


def test_epochs_are_passes_over_the_corpus(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=0, epochs=2, batch=128, length=32)
    shards = Shards(corpus / "data")
    specials = Specials.of(shards.tokenizer())
    loader = Loader(shards, recipe.builder(), batch=128, length=32, specials=specials)
    assert loader.steps_per_epoch > 1
    assert train(recipe).step == 2 * loader.steps_per_epoch
