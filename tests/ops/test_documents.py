"""Text numbers, compared with loops over tokens."""

import pytest
import torch
from gradients import TEXTS, draw_texts, reads
from hypothesis import given
from hypothesis import strategies as st

from lightbert.ops.documents import neighbours, taps_within_text, visible_keys

packed_rows = st.integers(1, 12).flatmap(
    lambda tokens: st.lists(st.lists(st.integers(0, 3), min_size=tokens, max_size=tokens), min_size=1, max_size=3)
)
bool_rows = st.integers(1, 12).flatmap(
    lambda tokens: st.lists(st.lists(st.booleans(), min_size=tokens, max_size=tokens), min_size=1, max_size=3)
)


@given(st.one_of(packed_rows, bool_rows), st.sampled_from([1, 3, 5, 9]))
def test_taps_end_where_the_text_ends(rows, kernel):
    texts = torch.tensor(rows)
    within = taps_within_text(texts, kernel)
    for b, row in enumerate(rows):
        for i in range(len(row)):
            expected = [reads(texts, b, i, i + tap - kernel // 2, len(row)) for tap in range(kernel)]
            assert within[b, i].tolist() == expected


@given(packed_rows)
def test_tokens_of_a_packed_row_attend_to_their_own_text_only(rows):
    visible = visible_keys(torch.tensor(rows))
    for b, row in enumerate(rows):
        for i, number in enumerate(row):
            assert visible[b, 0, i].tolist() == [other == number for other in row]


def test_one_text_per_row_needs_one_row_of_keys():
    assert visible_keys(torch.tensor([[True, False]])).tolist() == [[[[True, False]]]]


@pytest.mark.parametrize("kind", TEXTS)
def test_a_neighbour_outside_the_text_reads_as_zero(kind):
    x, texts = torch.randn(3, 7, 2), draw_texts(kind, 3, 7)
    for tap, read in enumerate(neighbours(x, 5, texts)):
        for b in range(3):
            for i in range(7):
                source = i + tap - 2
                expected = x[b, source].tolist() if reads(texts, b, i, source, 7) else [0.0, 0.0]
                assert read[b, i].tolist() == expected


def test_without_texts_no_masking_is_computed():
    x = torch.randn(1, 3, 2)
    first, _, last = neighbours(x, 3, None)
    assert first.data_ptr() + 2 * x.element_size() * 2 == last.data_ptr(), "views of one padded copy"
