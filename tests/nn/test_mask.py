"""What a mask prepares for the parts, against loops over tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightbert.errors import InputError
from lightbert.nn.mask import Mask


@st.composite
def packed_rows(draw) -> list[list[int]]:
    """Rows of numbered texts, each in one piece and in any order, with padding anywhere between them."""
    tokens = draw(st.integers(1, 12))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        row: list[int] = []
        for number in draw(st.permutations(range(1, 6))):
            row += [0] * draw(st.integers(0, 2)) + [number] * draw(st.integers(1, 4))
        rows.append((row + [0] * tokens)[:tokens])
    return rows


bool_rows = st.integers(1, 12).flatmap(
    lambda tokens: st.lists(st.lists(st.booleans(), min_size=tokens, max_size=tokens), min_size=1, max_size=3)
)


@given(packed_rows())
def test_tokens_see_their_own_text_and_count_from_its_start(rows):
    mask = Mask(torch.tensor(rows))
    for b, row in enumerate(rows):
        for i, number in enumerate(row):
            assert mask.visible[b, 0, i].tolist() == [other == number for other in row]
            assert mask.keep[b, i] == (number > 0)
            if number:
                assert mask.positions[b, i] == i - row.index(number)


@given(packed_rows(), st.sampled_from([1, 3, 5]))
def test_a_window_ends_where_the_text_ends(rows, kernel):
    mask, x = Mask(torch.tensor(rows)), torch.zeros(len(rows), len(rows[0]), 1)
    window, reach = mask.window(kernel), mask.reach(x, kernel)
    for b, row in enumerate(rows):
        for i, number in enumerate(row):
            for tap in range(kernel):
                source = i + tap - kernel // 2
                same_text = 0 <= source < len(row) and row[source] == number
                assert window[b, i, tap] == same_text
                assert reach[b, i, tap] == ((same_text and number > 0) or tap == kernel // 2)


@given(bool_rows)
def test_real_tokens_are_seen_counted_and_kept(rows):
    mask, x = Mask(torch.tensor(rows)), torch.ones(len(rows), len(rows[0]), 2)
    for b, row in enumerate(rows):
        assert mask.visible[b, 0, 0].tolist() == (row if any(row) else [True] * len(row))
        counted = [max(0, sum(row[: i + 1]) - 1) for i in range(len(row))]
        assert mask.positions[b].tolist() == counted
        assert mask.zero(x)[b, :, 0].tolist() == [float(real) for real in row]
        reach = mask.reach(x, 3)
        for i in range(len(row)):
            neighbours = [0 <= j < len(row) and row[j] for j in (i - 1, i, i + 1)]
            assert reach[b, i].tolist() == [neighbours[0], True, neighbours[2]]
    assert mask.window(3) is None


def test_without_a_mask_nothing_is_prepared_and_nothing_copied():
    mask, x = Mask(None), torch.randn(2, 3, 4)
    assert (mask.visible, mask.positions, mask.keep, mask.window(3)) == (None, None, None, None)
    assert mask.zero(x) is x
    assert mask.reach(x, 3).tolist()[0] == [[False, True, True], [True, True, True], [True, True, False]]


def test_released_padding_hides_it_from_attention_only():
    mask, x = Mask(torch.tensor([[True, False]]), released=True), torch.randn(1, 2, 4)
    assert mask.visible.flatten().tolist() == [True, False]
    assert (mask.positions, mask.keep, mask.window(3)) == (None, None, None)
    assert mask.zero(x) is x


def test_released_padding_refuses_packed_texts_and_names_their_type():
    with pytest.raises(InputError, match=r"boolean mask, not torch\.int64"):
        Mask(torch.tensor([[1, 2]]), released=True)


@pytest.mark.parametrize("numbers", [torch.int64, torch.int32, torch.int16])
def test_any_integers_may_number_the_texts(numbers):
    texts: Tensor = torch.tensor([[1, 1, 2, 0]], dtype=numbers)
    mask = Mask(texts)
    assert mask.positions.tolist() == [[0, 1, 0, 0]]
    assert mask.window(3).shape == (1, 4, 3)
