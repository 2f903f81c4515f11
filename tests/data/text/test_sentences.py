"""Splitting paragraphs into sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.text.sentences import split_sentences


@pytest.mark.parametrize(
    "paragraph",
    [
        "One sentence. | Another one!",
        "Who said so? | He did.",
        '"Come here." | "Why?" | She left.',
        "It ended (badly.) | Then it began again.",
        "The year was 1984. | 1985 came after.",
        "So did I. | You did not.",
        "Mr. Smith met Dr. J. R. Jones of the U.S. Navy. | They talked.",
        "See Fig. 3 and pp. 12 in vol. 2.",
        "the cost, e.g. Tables, is 3.5 million",
        "It stops... | Perhaps.",
        "“Quoted.” | ‘Quoted too.’ | Éclair.",
        "No end mark",
    ],
)
def test_a_paragraph_is_split_at_sentence_boundaries(paragraph: str) -> None:
    expected = paragraph.split(" | ")
    assert split_sentences(" ".join(expected)) == expected


def test_whitespace_has_no_sentences() -> None:
    assert split_sentences("  ") == []


@given(st.text(alphabet="ab AB.!?\"' ", max_size=60))
def test_splitting_drops_nothing_but_whitespace(paragraph: str) -> None:
    assert "".join(split_sentences(paragraph)).replace(" ", "") == paragraph.replace(" ", "")
