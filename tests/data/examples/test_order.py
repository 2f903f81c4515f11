"""The order of the examples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.examples.order import shuffle_at


def order(size: int, seed: int = 0, epoch: int = 0) -> list[int]:
    return shuffle_at(np.arange(size), size, seed, epoch).tolist()


@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(0, 1000))
def test_every_example_appears_exactly_once(size: int, seed: int, epoch: int) -> None:
    assert sorted(order(size, seed, epoch)) == list(range(size))


@given(st.integers(1, 1 << 40), st.data())
def test_any_entry_of_a_huge_shuffle_is_computed_directly(size: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True)))
    found = shuffle_at(places, size, 0, 0)
    assert len(set(found.tolist())) == len(places)
    assert found.min() >= 0
    assert found.max() < size


def test_the_order_never_changes_between_versions() -> None:
    assert order(10, seed=1, epoch=2) == [5, 9, 0, 3, 2, 6, 1, 4, 7, 8]


def test_another_seed_or_epoch_gives_another_order() -> None:
    assert len({tuple(order(100, seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_every_example_is_equally_likely_at_every_position() -> None:
    counts = np.zeros((13, 13))
    for epoch in range(2600):
        counts[np.arange(13), order(13, epoch=epoch)] += 1
    # Each of the 169 counts is 200 on average; the sum has 144 degrees of freedom, standard deviation 17.
    assert 75 < ((counts - 200) ** 2 / 200).sum() < 213


def test_neighbours_in_the_corpus_are_separated() -> None:
    places = np.argsort(order(10_000))
    distances = np.abs(np.diff(places))
    # For a uniform shuffle the mean distance is a third of the size.
    assert abs(distances.mean() / 10_000 - 1 / 3) < 0.01
