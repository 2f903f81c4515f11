"""Grouping rows by length and packing them, without torch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.features import Features, group_by_length, pack, packed_rows
from lightbert.errors import InputError

lengths_of_rows = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def cost(lengths, batches, min_tokens):
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


def test_small_batches_are_merged_up_to_the_minimum_size():
    for min_tokens, batches in ((1, 3), (1000, 1)):
        assert len(list(group_by_length(np.array([3, 9, 3, 5]), min_tokens=min_tokens, max_tokens=10**6))) == batches


def test_no_rows_give_no_batches():
    assert list(group_by_length(np.array([], dtype=np.int64), min_tokens=1, max_tokens=1)) == []


WIDTH = 24
texts = st.lists(st.integers(1, WIDTH), max_size=60)
limits = st.none() | st.integers(1, 5)


def features_of(lengths):
    """Texts whose tokens are all different, the second half of each in the second segment."""
    ids = iter(range(100, 100_000))
    return Features.of([[next(ids) for _ in range(n)] for n in lengths], [n // 2 for n in lengths])


@given(texts, limits)
def test_every_text_is_once_in_one_row_and_no_row_is_too_long(lengths, limit):
    packing = pack(np.array(lengths, dtype=np.int64), WIDTH, limit)
    taken = np.zeros(packing.rows * WIDTH, dtype=int)
    counts = np.zeros(packing.rows, dtype=int)
    for start, length in zip(packing.starts.tolist(), lengths, strict=True):
        assert start // WIDTH == (start + length - 1) // WIDTH
        taken[start : start + length] += 1
        counts[start // WIDTH] += 1
    assert taken.max(initial=0) <= 1
    assert counts.min(initial=1) >= 1
    assert limit is None or counts.max(initial=0) <= limit
    assert packing.fill == pytest.approx(taken.mean() if len(taken) else 1.0)


@given(texts)
def test_the_tokens_of_a_row_are_at_its_beginning(lengths):
    packing = pack(np.array(lengths, dtype=np.int64), WIDTH)
    rows = packed_rows(
        features_of(lengths), *packing.part(0, packing.rows), (packing.rows, WIDTH), 0, capacity=len(lengths)
    )
    real = rows.texts > 0
    assert np.array_equal(real, np.sort(real, axis=1)[:, ::-1])


@given(texts)
def test_any_two_rows_together_have_more_tokens_than_a_row_can_hold(lengths):
    packing = pack(np.array(lengths, dtype=np.int64), WIDTH)
    filled = np.bincount(packing.starts // WIDTH, weights=lengths, minlength=packing.rows)
    assert sum(sorted(filled)[:2]) > WIDTH or packing.rows < 2


def test_lengths_that_fit_exactly_leave_no_padding():
    packing = pack(np.array([3, 20, 4, 5, 19, 21]), WIDTH)
    assert (packing.rows, packing.fill) == (3, 1.0)


def test_short_texts_fill_rows_to_97_percent():
    lengths = np.random.default_rng(0).gamma(2.0, 7.0, 4000).astype(np.int64).clip(3, 128)
    packing = pack(lengths, 128, 32)
    assert packing.fill > 0.97


def test_the_places_depend_on_the_lengths_only():
    lengths = np.array([5, 9, 5, 2, 9, 24, 1, 7])
    assert pack(lengths, WIDTH).starts.tolist() == pack(lengths.copy(), WIDTH).starts.tolist()


def test_the_longest_text_that_is_allowed_has_a_row_of_its_own():
    packing = pack(np.array([1, WIDTH, 1]), WIDTH)
    assert packing.starts.tolist() == [WIDTH, 0, WIDTH + 1]


def test_texts_that_are_too_long_or_empty_are_an_error():
    for lengths in ([3, WIDTH + 1], [0, 3]):
        with pytest.raises(InputError, match=f"must have 1 to {WIDTH} tokens"):
            pack(np.array(lengths), WIDTH)


@given(texts, st.integers(1, 4), st.integers(0, 3))
def test_parts_of_the_rows_contain_each_text_with_its_tokens_and_segments(lengths, rows, spare):
    features, packing = features_of(lengths), pack(np.array(lengths, dtype=np.int64), WIDTH)
    seen = []
    for first in range(0, packing.rows, rows):
        chosen, starts = packing.part(first, first + rows)
        capacity = len(chosen) + spare
        arrays = packed_rows(features, chosen, starts, (rows, WIDTH), 7, capacity)
        assert arrays.ids.shape == arrays.texts.shape == arrays.segments.shape == (rows, WIDTH)
        assert arrays.starts[0] == 0
        assert np.all(np.diff(arrays.starts[: len(chosen)]) > 0)
        assert arrays.starts[len(chosen) :].tolist() == [rows * WIDTH] * spare
        assert arrays.lengths.tolist() == [*features.lengths[chosen].tolist(), *[0] * spare]
        assert np.all(arrays.ids[arrays.texts == 0] == 7)
        assert not arrays.segments[arrays.texts == 0].any()
        for number, (text, start) in enumerate(zip(chosen.tolist(), starts.tolist(), strict=True), start=1):
            place = slice(start, start + lengths[text])
            expected = features.tokens[features.starts[text] : features.starts[text + 1]]
            assert np.array_equal(arrays.ids.ravel()[place], expected)
            assert np.array_equal(features.tokens[arrays.at.ravel()[place]], expected)
            assert np.flatnonzero(arrays.texts.ravel() == number).tolist() == list(range(start, start + lengths[text]))
            second = lengths[text] // 2
            assert arrays.segments.ravel()[place].tolist() == [0] * second + [1] * (lengths[text] - second)
        seen += chosen.tolist()
    assert sorted(seen) == list(range(len(lengths)))
