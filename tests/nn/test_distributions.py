"""Distributions of initial weights, and their reproducibility on every machine."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from lightbert.nn.init import (
    Constant,
    Normal,
    TruncatedNormal,
    Uniform,
    glorot,
    normal_quantile,
    truncated_normal_quantile,
)

NORMAL = NormalDist()
INDICES = np.arange(100_000)
# The draws of seed 1 from normal distributions of deviation 0.02, truncated or not, and a uniform one of bound 0.5.
NORMAL_NUMBERS = [-0.019891791427244714, -0.014840125848973637, 0.03603101528578038]
PLAIN_NUMBERS = [-0.021271653554670592, -0.015706918230795328, 0.0441266370794316]
UNIFORM_NUMBERS = [-0.3562411031452939, -0.2838746082270518, 0.4863196137594059]


def test_the_quantile_function_is_that_of_a_normal_distribution_truncated_at_two_deviations() -> None:
    u = np.linspace(-1, 1, 20_001)
    below, between = NORMAL.cdf(-2), NORMAL.cdf(2) - NORMAL.cdf(-2)
    expected = [NORMAL.inv_cdf(below + between * (1 + each) / 2) for each in u]
    assert np.abs(truncated_normal_quantile(u) - expected).max() < 4e-9


def test_the_quantile_function_of_a_normal_distribution_reaches_its_tails() -> None:
    upper = 1 - np.logspace(-9.6, -0.4, 2000)
    u = np.concatenate([np.linspace(-0.999, 0.999, 2001), upper, -upper])
    expected = np.array([-NORMAL.inv_cdf((1 - each) / 2) if each > 0 else NORMAL.inv_cdf((1 + each) / 2) for each in u])
    assert (np.abs(normal_quantile(u) - expected) <= 4e-9 * np.maximum(np.abs(expected), 1)).all()


def test_the_quantile_functions_are_odd_and_increasing() -> None:
    u = np.linspace(-1, 1, 100_001)
    for quantile, among in ((truncated_normal_quantile, u), (normal_quantile, u[1:-1])):
        values = quantile(among)
        assert (quantile(-among) == -values).all()
        assert (np.diff(values) > 0).all()


def test_the_first_numbers_are_these_on_every_machine() -> None:
    few = np.arange(3)
    assert TruncatedNormal(0.02).draw(1, few).tolist() == NORMAL_NUMBERS
    assert Uniform(0.5).draw(1, few).tolist() == UNIFORM_NUMBERS
    assert Normal(0.02).draw(1, few).tolist() == PLAIN_NUMBERS
    assert TruncatedNormal(0.02).draw(1, few + 2).tolist()[0] == NORMAL_NUMBERS[2]


def test_samples_follow_the_distribution() -> None:
    drawn = TruncatedNormal(0.5).draw(3, INDICES)
    inside = NORMAL.cdf(2) - NORMAL.cdf(-2)
    for cut in (-0.8, -0.3, 0.0, 0.1, 0.6):
        expected = (NORMAL.cdf(cut / 0.5) - NORMAL.cdf(-2)) / inside
        assert (drawn < cut).mean() == pytest.approx(expected, abs=5 * math.sqrt(0.25 / len(INDICES)))
    even = Uniform(0.5).draw(3, INDICES)
    for cut in (-0.4, 0.0, 0.25):
        assert (even < cut).mean() == pytest.approx(cut + 0.5, abs=5 * math.sqrt(0.25 / len(INDICES)))
    assert (Constant(3.0).draw(3, INDICES) == 3.0).all()


def test_neighbours_and_seeds_are_not_correlated() -> None:
    drawn, other = (Uniform(1.0).draw(seed, INDICES) for seed in (1, 2))
    for shifted in (np.roll(drawn, 1), np.roll(drawn, 64), other):
        assert abs((drawn * shifted).mean() * 3) < 5 / math.sqrt(len(INDICES))


def test_the_bound_of_glorot_depends_on_inputs_and_outputs() -> None:
    assert glorot(torch.empty(96, 48)) == Uniform(math.sqrt(6 / 144))
