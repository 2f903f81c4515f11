"""The composite paper's line pairs."""

import numpy as np
import pytest
from corpora import SPECIALS, Lengths, corpus, lengths, sentences
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.batches.assembly import assemble
from lightbert.data.examples.line_pairs import LinePairs
from lightbert.errors import InputError


def rows(shards: Lengths, length: int):
    source = corpus(shards)
    index = LinePairs().build(source, length, 0, 0)
    return assemble(source, index, np.arange(len(index)), SPECIALS)


@given(lengths, st.integers(2, 90))
def test_lines_are_paired_across_documents_and_truncated_on_the_right(shards: Lengths, length: int) -> None:
    expected = []
    for shard in sentences(shards):
        lines = [line for document in shard for line in document]
        for a, b in zip(lines[::2], lines[1::2], strict=False):
            text = [SPECIALS.cls, *a, SPECIALS.sep, *b, SPECIALS.sep][:length]
            expected.append(text + [SPECIALS.pad] * (length - len(text)))
    made = rows(shards, length)
    assert made.ids.tolist() == expected
    assert made.mask.tolist() == [[token != SPECIALS.pad for token in row] for row in expected]
    assert not made.segments.any()


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (8, [2, 10, 11, 3, 12, 13, 14, 3]),
        (7, [2, 10, 11, 3, 12, 13, 14]),
        (5, [2, 10, 11, 3, 12]),
        (4, [2, 10, 11, 3]),
        (3, [2, 10, 11]),
    ],
)
def test_truncation_can_remove_the_last_separator(length: int, expected: list[int]) -> None:
    # The two lines belong to different documents.
    assert rows([[[2], [3]]], length).ids.tolist() == [expected]


def test_the_odd_last_line_of_a_shard_is_dropped() -> None:
    assert len(rows([[[2, 3, 4]], [[5]]], 16).ids) == 1


def test_a_length_below_the_minimum_is_an_input_error() -> None:
    with pytest.raises(InputError, match="length of line pairs must be >= 2, got 1"):
        LinePairs().build(corpus([[[5, 5]]]), 1, 0, 0)
