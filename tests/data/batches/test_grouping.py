"""Grouping rows by length into the cheapest batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.batches.grouping import group_by_length

lengths_of_rows = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def cost(lengths: np.ndarray, batches: list[np.ndarray], min_tokens: int) -> int:
    return sum(max(min_tokens, len(rows) * int(lengths[rows].max())) for rows in batches)


@given(lengths_of_rows, st.integers(1, 200), st.integers(1, 500), st.booleans())
def test_every_row_is_in_one_batch_of_rows_sorted_by_length(lengths, min_tokens, max_tokens, equal_lengths):
    lengths = np.array(lengths)
    batches = list(group_by_length(lengths, min_tokens=min_tokens, max_tokens=max_tokens, equal_lengths=equal_lengths))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(np.all(np.diff(lengths[rows]) >= 0) for rows in batches)
    assert all(len(rows) == 1 or len(rows) * lengths[rows[-1]] <= max_tokens for rows in batches)
    if equal_lengths:
        assert all(len(set(lengths[rows].tolist())) == 1 for rows in batches)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 100))
def test_no_other_split_of_the_sorted_rows_is_cheaper(lengths, min_tokens):
    lengths = np.array(lengths)
    found = cost(lengths, list(group_by_length(lengths, min_tokens=min_tokens, max_tokens=10**9)), min_tokens)
    order = np.argsort(lengths, kind="stable")
    borders = np.flatnonzero(np.diff(lengths[order])) + 1
    for choice in range(1 << len(borders)):
        cuts = [border for at, border in enumerate(borders) if choice >> at & 1]
        assert found <= cost(lengths, np.split(order, cuts), min_tokens)


@pytest.mark.parametrize(("min_tokens", "batches"), [(1, 3), (1000, 1)])
def test_small_batches_are_merged_up_to_the_minimum_size(min_tokens, batches):
    assert len(list(group_by_length(np.array([3, 9, 3, 5]), min_tokens=min_tokens, max_tokens=10**6))) == batches


def test_no_rows_give_no_batches():
    assert list(group_by_length(np.array([], dtype=np.int64), min_tokens=1, max_tokens=1)) == []
