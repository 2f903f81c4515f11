"""Splitting paragraphs into sentences, and sets by hashes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.sentences import hashed_order, hashed_part, split_sentences


def test_a_paragraph_is_split_at_sentence_boundaries():
    for paragraph in (
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
    ):
        expected = paragraph.split(" | ")
        assert split_sentences(" ".join(expected)) == expected


def test_whitespace_has_no_sentences():
    assert split_sentences("  ") == []


@given(st.text(alphabet="ab AB.!?\"' ", max_size=60))
def test_splitting_drops_nothing_but_whitespace(paragraph):
    assert "".join(split_sentences(paragraph)).replace(" ", "") == paragraph.replace(" ", "")


SHARES = {"train": 6, "dev": 1, "test": 3}


def test_a_part_has_its_share_of_names():
    counts = Counter(hashed_part(f"package.module.f{number}", SHARES) for number in range(10_000))
    for part, share in SHARES.items():
        assert counts[part] == pytest.approx(1_000 * share, rel=0.1)


def test_parts_and_orders_are_the_same_everywhere():
    parts = [hashed_part(name, SHARES) for name in ("numpy.dot", "numpy.sum", "numpy.fft.fft")]
    assert parts == ["train", "test", "train"]
    assert sorted("abcdef", key=hashed_order) == list("dfcbea")
