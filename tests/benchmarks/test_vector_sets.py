"""The comparison of vectors: scores of an encoder whose vectors are known, and the table."""

import numpy as np
import pytest

from benchmarks.vectors import Labels, Retrieval, Similarity, measure, table, words_score

WORDS = ["cat", "dog", "sun", "moon", "red", "blue"]


def _encode(texts):
    """One dimension per word."""
    return np.array([[float(word in text.split()) for word in WORDS] for text in texts], np.float32)


def test_pairs_are_ranked_by_their_cosines():
    part = Similarity(["cat", "cat", "sun"], ["cat", "dog", "sun"], [5.0, 1.0, 4.0])
    assert measure(_encode, "pairs", part)["pairs"] == pytest.approx(np.sqrt(3) / 2)
    assert measure(_encode, "pairs", part._replace(scores=[1.0, 5.0, 1.0]))["pairs"] == pytest.approx(-1)


def test_a_query_finds_its_text_by_vectors_and_by_words():
    pytest.importorskip("bm25s")
    part = Retrieval(["the red", "a dog"], ["b", "a"], {"a": "dog cat", "b": "red moon", "c": "blue sun"})
    assert measure(_encode, "found", part)["found"] == 1
    assert words_score(part) == 100


def test_neighbours_and_clusters_of_labelled_texts():
    rows = [(f"{word} {word}", word) for word in WORDS for _ in range(6)]
    scores = measure(_encode, "labels", Labels(rows, rows))
    assert scores == {"labels": 1.0, "labels, clusters": pytest.approx(1.0)}
    shifted = [(text, WORDS[WORDS.index(label) - 1]) for text, label in rows]
    assert measure(_encode, "labels", Labels(rows, shifted))["labels"] == 0


def test_the_table_has_a_row_per_set_and_the_means():
    lines = [*table({"ours": {"a": 50.0, "b": 70.0}, "theirs": {"a": 40.0, "b": 60.0}}, {"b": 12.0})]
    assert lines[2:] == ["| a | 50.0 | 40.0 |  |", "| b | 70.0 | 60.0 | 12.0 |", "| mean of 2 | 60.0 | 50.0 | |"]
