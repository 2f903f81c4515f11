"""BERT's pairs with a next-sentence label."""

import numpy as np
import pytest
from corpora import FIRST, SPECIALS, Lengths, corpus, documents_of, lengths, prose
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.batches.assembly import assemble
from lightbert.data.examples.index import Index
from lightbert.data.examples.sentence_pairs import SentencePairs
from lightbert.errors import InputError


def index_of(shards: Lengths, length: int, seed: int = 0, epoch: int = 0, short: float = 0.3) -> Index:
    return SentencePairs(short).build(corpus(shards), length, seed, epoch)


def pairs(shards: Lengths, length: int, seed: int = 0, short: float = 0.3) -> list[tuple[list[int], list[int], int]]:
    """Return the two texts and the label of every example, and check the special tokens."""
    index = index_of(shards, length, seed, short=short)
    assert index.labels is not None
    rows = assemble(corpus(shards), index, np.arange(len(index)), SPECIALS)
    found = []
    for ids, mask, segments, label in zip(rows.ids, rows.mask, rows.segments, index.labels, strict=True):
        real, kinds = ids[mask].tolist(), segments[mask]
        assert not segments[~mask].any()
        a, b = np.array(real)[kinds == 0].tolist(), np.array(real)[kinds == 1].tolist()
        assert [a[0], a[-1], b[-1]] == [SPECIALS.cls, SPECIALS.sep, SPECIALS.sep]
        found.append((a[1:-1], b[:-1], int(label)))
    return found


many_documents = lengths.filter(lambda shards: sum(map(len, shards)) > 1)


@given(many_documents, st.integers(5, 60), st.integers(0, 1 << 40))
def test_the_second_text_follows_or_comes_from_another_document(shards: Lengths, length: int, seed: int) -> None:
    document = documents_of(shards)
    for a, b, is_random in pairs(shards, length, seed):
        for text in (a, b):
            assert text == list(range(text[0], text[0] + len(text)))
            assert document[text[0] - FIRST] == document[text[-1] - FIRST]
        same = document[a[0] - FIRST] == document[b[0] - FIRST]
        assert same == (not is_random)
        if not is_random:
            assert b[0] > a[-1]


@given(many_documents, st.integers(5, 60))
def test_short_pairs_are_complete_and_long_pairs_fill_the_row(shards: Lengths, length: int) -> None:
    ends = FIRST + np.cumsum([size for shard in shards for document in shard for size in document])
    starts = {FIRST, *ends.tolist()}
    for a, b, is_random in pairs(shards, length):
        if len(a) + len(b) < length - 3:
            assert {a[0], b[0], a[-1] + 1, b[-1] + 1} <= starts
            assert is_random or b[0] == a[-1] + 1
        assert 0 < len(a) + len(b) <= length - 3


@given(many_documents, st.integers(5, 60))
def test_without_truncation_every_token_is_used_as_a_first_text_or_its_continuation(
    shards: Lengths, length: int
) -> None:
    # The rows are so long that nothing is truncated and a chunk is a whole document.
    seen = [token for a, b, is_random in pairs(shards, 4000) for token in (a if is_random else a + b)]
    total = len(documents_of(shards))
    assert set(seen) == set(range(FIRST, FIRST + total))
    assert len(seen) == total


def test_the_longer_text_is_truncated_on_both_sides_and_the_shorter_one_kept() -> None:
    made = [(a, b) for a, b, is_random in pairs([[[4, 400]] * 200], 64, short=0.0) if len(a) == 4 and not is_random]
    assert len(made) > 50
    assert {len(b) for _, b in made} == {57}
    # The number of tokens removed at the start is binomial, with n = 343 and p = 0.5.
    fronts = [(b[0] - FIRST) % 404 - 4 for _, b in made]
    assert np.mean(fronts) == pytest.approx(343 / 2, abs=3)
    assert np.std(fronts) == pytest.approx(np.sqrt(343) / 2, rel=0.3)


def test_two_long_texts_are_each_truncated_to_half_of_the_row() -> None:
    assert {(len(a), len(b)) for a, b, _ in pairs([[[500, 500]] * 20], 64)} == {(31, 30)}
    assert {(len(a), len(b)) for a, b, _ in pairs([[[500, 500]] * 20], 65)} == {(31, 31)}


def test_half_of_the_second_texts_are_drawn_from_all_other_documents() -> None:
    shards = prose(40_000, per_document=200)
    document = documents_of(shards)
    made = pairs(shards, 128, short=0.0)
    assert np.mean([is_random for *_, is_random in made]) == pytest.approx(0.5, abs=0.03)
    drawn = np.bincount([document[b[0] - FIRST] for _, b, is_random in made if is_random], minlength=200)
    assert drawn.min() > 0
    assert drawn.std() == pytest.approx(np.sqrt(drawn.mean()), rel=0.25)


def test_random_second_texts_can_come_from_other_shards() -> None:
    shards = [[[3, 3]], [[4, 4]], [[5, 5], [6, 6]]]
    document = documents_of(shards)
    met = {
        (document[a[0] - FIRST], document[b[0] - FIRST])
        for seed in range(60)
        for a, b, is_random in pairs(shards, 32, seed)
        if is_random
    }
    assert met == {(i, j) for i in range(4) for j in range(4) if i != j}


def test_another_epoch_or_seed_gives_other_pairs() -> None:
    shards = prose(500, per_document=50)
    made = [index_of(shards, 64, seed, epoch).start.tobytes() for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(made)) == 4
    assert made[0] == index_of(shards, 64).start.tobytes()


def test_a_single_document_or_a_short_length_is_an_input_error() -> None:
    with pytest.raises(InputError, match="require at least 2 documents, got 1"):
        index_of([[[5, 5]]], 16)
    with pytest.raises(InputError, match="length of sentence pairs must be >= 5, got 4"):
        index_of([[[5], [5]]], 4)
