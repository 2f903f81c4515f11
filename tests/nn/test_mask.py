"""The fields of a mask, compared with loops over tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightbert.errors import InputError
from lightbert.nn.mask import Mask


@st.composite
def packed_rows(draw) -> list[list[int]]:
    """Rows of numbered texts, each contiguous, in any order, with padding between them."""
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
def test_packed_texts_are_kept_and_positions_restart_with_each_text(rows):
    texts = torch.tensor(rows)
    mask = Mask(texts)
    assert mask.attention_texts is texts
    assert mask.convolution_texts is texts
    for b, row in enumerate(rows):
        for i, number in enumerate(row):
            if number:
                assert mask.positions[b, i] == i - row.index(number)


@given(bool_rows)
def test_attention_convolutions_and_positions_use_real_tokens_only(rows):
    mask = Mask(torch.tensor(rows))
    assert mask.convolution_texts.tolist() == rows
    for b, row in enumerate(rows):
        assert mask.attention_texts[b].tolist() == (row if any(row) else [True] * len(row))
        counted = [max(0, sum(row[: i + 1]) - 1) for i in range(len(row))]
        assert mask.positions[b].tolist() == counted


def test_without_a_mask_all_fields_are_none():
    mask = Mask(None)
    assert (mask.attention_texts, mask.convolution_texts, mask.positions) == (None, None, None)


def test_released_padding_masks_attention_only():
    mask = Mask(torch.tensor([[True, False]]), released=True)
    assert mask.attention_texts.tolist() == [[True, False]]
    assert (mask.convolution_texts, mask.positions) == (None, None)


def test_packed_texts_with_released_padding_are_an_error_with_their_dtype():
    with pytest.raises(InputError, match=r"must be boolean .*, got torch\.int64"):
        Mask(torch.tensor([[1, 2]]), released=True)


@pytest.mark.parametrize("numbers", [torch.int64, torch.int32, torch.int16])
def test_any_integers_can_number_the_texts(numbers):
    mask = Mask(torch.tensor([[1, 1, 2, 0]], dtype=numbers))
    assert mask.positions.tolist() == [[0, 1, 0, 0]]
    assert mask.convolution_texts.dtype is numbers
