"""The sample for tokenizer training, and the hashes that determine it."""

import pytest

from lightbert.data.corpus.encoding import is_held_out, score
from lightbert.data.corpus.preparation import sample

DOCUMENTS = [f"document number {number} " + "x" * (number % 50) for number in range(2000)]
TOTAL = sum(map(len, DOCUMENTS))


def test_the_sample_of_a_small_corpus_is_everything_that_is_not_held_out() -> None:
    assert sample(DOCUMENTS, TOTAL, 0.0) == DOCUMENTS
    assert sample(DOCUMENTS, TOTAL, 0.1) == [text for text in DOCUMENTS if not is_held_out(text, 0.1)]


def test_a_large_corpus_is_sampled_uniformly() -> None:
    kept = sample(DOCUMENTS, TOTAL // 3, 0.0)
    assert TOTAL / 6 < sum(map(len, kept)) <= TOTAL // 3
    halves = [sum(text in kept for text in half) for half in (DOCUMENTS[:1000], DOCUMENTS[1000:])]
    assert min(halves) > 0.8 * max(halves)


def test_the_order_of_the_documents_does_not_matter() -> None:
    assert sorted(sample(DOCUMENTS[::-1], TOTAL // 3, 0.0)) == sorted(sample(DOCUMENTS, TOTAL // 3, 0.0))


def test_the_sample_has_at_least_one_document() -> None:
    assert len(sample(DOCUMENTS, 10, 0.0)) == 1


def test_the_hashes_are_part_of_the_format() -> None:
    assert score("Some text.", b"held-out") == 0.6561922725569123
    assert sum(is_held_out(text, 0.1) for text in DOCUMENTS) / len(DOCUMENTS) == pytest.approx(0.1, abs=0.02)
