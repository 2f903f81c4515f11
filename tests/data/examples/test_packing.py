"""Packed rows."""

import numpy as np
import pytest
from corpora import FIRST, SPECIALS, Lengths, corpus, documents_of, lengths, prose
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.batches.assembly import assemble
from lightbert.data.examples.packing import Packing
from lightbert.errors import InputError


def rows(shards: Lengths, length: int, shortest: int = 8):
    source = corpus(shards)
    index = Packing(shortest).build(source, length, 0, 0)
    return assemble(source, index, np.arange(len(index)), SPECIALS)


def texts(made) -> list[list[int]]:
    """Split the rows into texts by their masks."""
    return [
        ids[mask == number].tolist()
        for ids, mask in zip(made.ids, made.mask, strict=True)
        for number in range(1, mask.max() + 1)
    ]


@given(lengths, st.integers(3, 90), st.integers(1, 10))
def test_every_token_appears_once_and_in_order(shards: Lengths, length: int, shortest: int) -> None:
    ids = rows(shards, length, shortest).ids
    assert ids[ids >= FIRST].tolist() == list(range(FIRST, FIRST + len(documents_of(shards))))


@given(lengths, st.integers(3, 90))
def test_every_text_is_a_run_of_one_document_between_cls_and_sep(shards: Lengths, length: int) -> None:
    document = documents_of(shards)
    for first, *words, last in texts(rows(shards, length)):
        assert (first, last) == (SPECIALS.cls, SPECIALS.sep)
        assert words == list(range(words[0], words[0] + len(words)))
        assert document[words[0] - FIRST] == document[words[-1] - FIRST]


@given(lengths, st.integers(3, 90))
def test_texts_are_numbered_from_one_and_padding_is_zero_on_the_right(shards: Lengths, length: int) -> None:
    made = rows(shards, length)
    assert made.mask.dtype == np.int32
    assert ((made.mask == 0) == (made.ids == SPECIALS.pad)).all()
    for mask in made.mask:
        real = mask[mask > 0]
        assert (mask[: len(real)] > 0).all()
        assert real[0] == 1
        assert set(np.diff(real)) <= {0, 1}
    assert not made.segments.any()


@given(lengths, st.integers(3, 90), st.integers(1, 10))
def test_a_row_is_padded_only_before_a_text_that_would_be_too_short(
    shards: Lengths, length: int, shortest: int
) -> None:
    source = corpus(shards)
    first = 0
    for shard in range(len(shards)):
        made = rows(shards[shard : shard + 1], length, shortest)
        empty = (made.mask == 0).sum(axis=1)
        # The last row of a shard has the remaining tokens.
        assert (empty[:-1] < shortest + 2).all()
        first += len(empty)
    assert first == len(Packing(shortest).build(source, length, 0, 0))


def test_rows_of_prose_are_full() -> None:
    made = rows(prose(20_000, per_document=7), 128)
    assert (made.mask > 0).mean() > 0.99


def test_a_length_below_the_minimum_is_an_input_error() -> None:
    with pytest.raises(InputError, match="length of packed rows must be >= 3, got 2"):
        Packing().build(corpus([[[5]]]), 2, 0, 0)
