"""Stateless random numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightbert.ops.randomness import Stream, bits, chance, mix, uniform

WORD = st.integers(0, 2**32 - 1)


def grid(
    seed: int = 0, stream: Stream = Stream.POSITION, step: int = 0, rows: int = 256, columns: int = 256
) -> np.ndarray:
    return bits(seed, stream, step, np.arange(rows)[:, None], np.arange(columns))


def test_the_numbers_never_change() -> None:
    assert [mix(word) for word in (0, 1, 2**32 - 1)] == [0, 1753845952, 1734902346]
    assert grid(seed=1, step=2, rows=2, columns=2).tolist() == [[1999914902, 1454468886], [1712409843, 106214433]]


@given(st.integers(0, 2**64 - 1), st.sampled_from(Stream), WORD, WORD, WORD)
def test_python_numpy_and_torch_give_the_same_bits(seed: int, stream: Stream, step: int, row: int, column: int) -> None:
    expected = bits(seed, stream, step, row, column)
    assert 0 <= expected < 2**32
    assert bits(seed, stream, step, np.array([row]), np.array([column])).tolist() == [expected]
    assert bits(seed, stream, torch.tensor(step), torch.tensor([row]), torch.tensor([column])).tolist() == [expected]


@given(WORD)
def test_mix_equals_its_unsigned_definition(word: int) -> None:
    expected = word
    expected = (expected ^ expected >> 16) * 0x7FEB352D % 2**32
    expected = (expected ^ expected >> 15) * 0x846CA68B % 2**32
    assert mix(word) == expected ^ expected >> 16


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits() -> None:
    rows, columns = torch.arange(512)[:, None], torch.arange(512)
    on_gpu = uniform(3, Stream.SAMPLE, torch.tensor(7).cuda(), rows.cuda(), columns.cuda())
    assert torch.equal(on_gpu.cpu(), uniform(3, Stream.SAMPLE, 7, rows, columns))


def test_every_argument_matters() -> None:
    reference = grid()
    others = [
        grid(seed=1),
        grid(seed=2**32),
        grid(stream=Stream.STYLE),
        grid(step=1),
        np.roll(reference, 1, axis=0),
        np.roll(reference, 1, axis=1),
    ]
    for other in others:
        # By chance, two of 65536 pairs of 32-bit words agree once in 65536 tries.
        assert (reference == other).sum() <= 1


def test_every_byte_is_uniform() -> None:
    words = grid(rows=512, columns=512).ravel()
    for shift in (0, 8, 16, 24):
        counts = np.bincount(words >> shift & 255, minlength=256)
        chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        # 255 degrees of freedom: mean 255, standard deviation 22.6.
        assert 155 < chi_square < 355


@pytest.mark.parametrize("axis", [0, 1])
def test_neighbours_are_not_correlated(axis: int) -> None:
    values = grid(rows=512, columns=512) / 2**32 - 0.5
    for distance in (1, 2, 3, 64):
        correlation = (values * np.roll(values, distance, axis)).mean() * 12
        assert abs(correlation) < 5 / np.sqrt(values.size)


def test_flipping_any_bit_of_a_row_or_column_flips_half_of_the_result() -> None:
    points = np.arange(4096)
    reference = bits(0, Stream.SAMPLE, 0, points, points)
    for bit in range(32):
        for row, column in ((points ^ 1 << bit, points), (points, points ^ 1 << bit)):
            flipped = np.bitwise_count(reference ^ bits(0, Stream.SAMPLE, 0, row, column)).mean()
            assert 15.5 < flipped < 16.5


def test_uniform_numbers_are_uniform_and_never_0_or_1() -> None:
    numbers = uniform(0, Stream.SAMPLE, 0, torch.arange(512)[:, None], torch.arange(512))
    assert numbers.dtype == torch.float32
    assert abs(numbers.mean() - 1 / 2) < 0.003
    assert abs(numbers.var() - 1 / 12) < 0.003
    extremes = torch.tensor([0, 2**32 - 1]) >> 9
    assert ((extremes.float() + 0.5) * 2.0**-23).tolist() == [2**-24, 1 - 2**-24]
    assert 0 < numbers.min() < numbers.max() < 1


def test_gumbel_noise_from_uniform_numbers_samples_a_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.125])
    noise = -(-uniform(0, Stream.SAMPLE, 0, torch.arange(20000)[:, None], torch.arange(4)).log()).log()
    shares = torch.bincount((probabilities.log() + noise).argmax(dim=1)) / 20000
    assert torch.allclose(shares, probabilities, atol=0.015)


def test_chances_are_fractions_of_32_bit_words() -> None:
    assert (chance(0), chance(0.5), chance(1)) == (0, 2**31, 2**32)
