"""Learning rate schedules, and layer-wise decay."""

import pytest

from lightbert.errors import InputError
from lightbert.train.loop import progress_of
from lightbert.train.optim import layer_rate
from lightbert.train.settings import Schedule

# At 0, half of the warm-up, its end, the middle, 90 % and the end, for a warm-up of 20 %.
FACTORS = {
    "product": [0.0, 0.5 * 0.9, 0.8, 0.5, 0.1, 0.0],
    "linear": [0.0, 0.5, 1.0, 0.625, 0.125, 0.0],
    "wsd": [0.0, 0.5, 1.0, 1.0, 0.5, 0.0],
    "constant": [0.0, 0.5, 1.0, 1.0, 1.0, 1.0],
    # min(t / warm-up, 0.9 + 0.1 √(1 − t)), the released code's with its warm-up of a tenth.
    "progressive": [0.0, 0.5, 0.9 + 0.1 * 0.8**0.5, 0.9 + 0.1 * 0.5**0.5, 0.9 + 0.1 * 0.1**0.5, 0.9],
}


@pytest.mark.parametrize("kind", FACTORS)
def test_each_kind_follows_its_formula(kind):
    schedule = Schedule(kind, warmup=0.2, decay=0.2)
    factors = [schedule.factor(progress, 1000) for progress in (0.0, 0.1, 0.2, 0.5, 0.9, 1.0)]
    assert factors == pytest.approx(FACTORS[kind], abs=1e-12)
    # A warm-up in steps equals its share of the steps, and without one the first step has the peak rate.
    in_steps, as_share = Schedule(kind, warmup=250), Schedule(kind, warmup=0.25)
    for progress in (0.0, 0.1, 0.25, 0.3, 1.0):
        assert in_steps.factor(progress, 1000) == pytest.approx(as_share.factor(progress, 1000))
    assert Schedule(kind, warmup=0.0).factor(0.0, 10) == 1.0
    if kind != "progressive":
        for step in (0, 9):
            assert Schedule(kind, warmup=0.5).factor(progress_of(step, 10, 0.0, 0.0), 10) > 0


def test_the_rate_ends_at_the_floor():
    for kind in ("product", "linear", "wsd"):
        schedule = Schedule(kind, warmup=0.1, floor=0.2)
        assert schedule.factor(1.0, 100) == pytest.approx(0.2), kind
        assert schedule.factor(0.0, 100) == 0.0
    assert Schedule("wsd", warmup=0.1, decay=0.0).factor(1.0, 100) == 1.0
    # A warm-up longer than the run never reaches the peak.
    assert Schedule("linear", warmup=1000).factor(1.0, 100) == pytest.approx(0.1)


def test_electras_product_is_warm_up_times_linear_decay_of_the_step():
    schedule = Schedule("product", warmup=10)
    rates = [schedule.factor(progress_of(step, 99, 0.0, 0.0), 100) for step in range(99)]
    assert rates == pytest.approx([min(1, t / 10) * (1 - t / 100) for t in range(1, 100)])


def test_progress_is_by_steps_or_by_time_whichever_is_larger():
    assert progress_of(49, 99, 0.0, 0.0) == 0.5
    assert progress_of(49, 99, 90.0, 100.0) == 0.9
    assert progress_of(49, 99, 10.0, 100.0) == 0.5
    assert progress_of(49, 0, 25.0, 100.0) == 0.25
    assert progress_of(49, 0, 250.0, 100.0) == 1.0
    assert progress_of(0, 0, 0.0, 100.0) > 0


def test_invalid_values_raise_an_error():
    for changes, problem in (
        ({"warmup": -1.0}, r"warmup must be >= 0, got -1\.0"),
        ({"decay": 1.5}, r"decay must be in \[0, 1\], got 1\.5"),
        ({"floor": -0.1}, r"floor must be in \[0, 1\], got -0\.1"),
    ):
        with pytest.raises(InputError, match=problem):
            Schedule(**changes)


def test_twelve_layers_have_the_released_powers_and_the_corrected_ones():
    for name, released, corrected in (
        ("model.heads.classify.output.weight", 0, 0),
        ("model.blocks.11.output.weight", 2, 1),
        ("model.blocks.0.mixer.query.bias", 13, 12),
        ("model.embeddings.word.weight", 14, 13),
        ("model.embeddings.project.weight", 14, 13),
    ):
        assert layer_rate(name, 12, 0.8) == pytest.approx(0.8**released), name
        assert layer_rate(name, 12, 0.8, "corrected") == pytest.approx(0.8**corrected), name
        assert layer_rate(name, 12, 1.0) == 1.0
