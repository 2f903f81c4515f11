"""Throughput, measured with a fake clock."""

from types import SimpleNamespace

import pytest

from lightbert.train import log
from lightbert.train.log import Meter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_the_first_lap_counts_towards_the_budget_but_not_towards_the_average(clock: list[float]) -> None:
    measured = Meter()
    clock[0] += 50
    assert measured.lap(100) == 50
    assert measured.latest == 2
    for tokens in (30, 50):
        clock[0] += 4
        assert measured.lap(tokens) == 4
    assert measured.latest == 12.5
    assert measured.average == 10


def test_pauses_are_excluded(clock: list[float]) -> None:
    measured = Meter()
    clock[0] += 1
    measured.lap(1)
    clock[0] += 1000
    assert measured.pause() == 1000
    clock[0] += 2
    assert measured.lap(20) == 2
    assert measured.average == 10


def test_a_single_lap_is_its_own_average(clock: list[float]) -> None:
    measured = Meter()
    assert measured.average == 0
    clock[0] += 2
    measured.lap(10)
    assert measured.average == 5


def test_zero_elapsed_time_does_not_divide_by_zero(clock: list[float]) -> None:
    measured = Meter()
    assert measured.lap(1) > 0
