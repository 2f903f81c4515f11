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
    """Return the two texts and the label of every example, having checked what stands around the texts."""
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
    for a, b, stranger in pairs(shards, length, seed):
        for text in (a, b):
            assert text == list(range(text[0], text[0] + len(text)))
            assert document[text[0] - FIRST] == document[text[-1] - FIRST]
        same = document[a[0] - FIRST] == document[b[0] - FIRST]
        assert same == (not stranger)
        if not stranger:
            assert b[0] > a[-1]


@given(many_documents, st.integers(5, 60))
def test_pairs_that_fit_are_whole_and_longer_ones_fill_the_row(shards: Lengths, length: int) -> None:
    ends = FIRST + np.cumsum([size for shard in shards for document in shard for size in document])
    starts = {FIRST, *ends.tolist()}
    for a, b, stranger in pairs(shards, length):
        if len(a) + len(b) < length - 3:
            assert {a[0], b[0], a[-1] + 1, b[-1] + 1} <= starts
            assert stranger or b[0] == a[-1] + 1
        assert 0 < len(a) + len(b) <= length - 3


@given(many_documents, st.integers(5, 60))
def test_every_token_not_truncated_is_read_as_a_first_text_or_its_continuation(shards: Lengths, length: int) -> None:
    # Long rows: nothing is truncated, and a chunk is a whole document.
    seen = [token for a, b, stranger in pairs(shards, 4000) for token in (a if stranger else a + b)]
    total = len(documents_of(shards))
    assert set(seen) == set(range(FIRST, FIRST + total))
    assert len(seen) == total


def test_the_longer_text_is_cut_on_both_sides_and_the_shorter_one_kept() -> None:
    made = [(a, b) for a, b, stranger in pairs([[[4, 400]] * 200], 64, short=0.0) if len(a) == 4 and not stranger]
    assert len(made) > 50
    assert {len(b) for _, b in made} == {57}
    # Of the 343 tokens that are cut a binomial half comes from the front.
    fronts = [(b[0] - FIRST) % 404 - 4 for _, b in made]
    assert np.mean(fronts) == pytest.approx(343 / 2, abs=3)
    assert np.std(fronts) == pytest.approx(np.sqrt(343) / 2, rel=0.3)


def test_two_long_texts_are_cut_to_halves() -> None:
    assert {(len(a), len(b)) for a, b, _ in pairs([[[500, 500]] * 20], 64)} == {(31, 30)}
    assert {(len(a), len(b)) for a, b, _ in pairs([[[500, 500]] * 20], 65)} == {(31, 31)}


def test_half_of_the_pairs_are_strangers_drawn_from_all_documents() -> None:
    shards = prose(40_000, per_document=200)
    document = documents_of(shards)
    made = pairs(shards, 128, short=0.0)
    assert np.mean([stranger for *_, stranger in made]) == pytest.approx(0.5, abs=0.03)
    drawn = np.bincount([document[b[0] - FIRST] for _, b, stranger in made if stranger], minlength=200)
    assert drawn.min() > 0
    assert drawn.std() == pytest.approx(np.sqrt(drawn.mean()), rel=0.25)


def test_strangers_come_from_other_shards_too() -> None:
    shards = [[[3, 3]], [[4, 4]], [[5, 5], [6, 6]]]
    document = documents_of(shards)
    met = {
        (document[a[0] - FIRST], document[b[0] - FIRST])
        for seed in range(60)
        for a, b, stranger in pairs(shards, 32, seed)
        if stranger
    }
    assert met == {(i, j) for i in range(4) for j in range(4) if i != j}


def test_another_epoch_or_seed_makes_other_pairs() -> None:
    shards = prose(500, per_document=50)
    made = [index_of(shards, 64, seed, epoch).start.tobytes() for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(made)) == 4
    assert made[0] == index_of(shards, 64).start.tobytes()


def test_one_document_and_short_rows_are_refused() -> None:
    with pytest.raises(InputError, match="two documents or more"):
        index_of([[[5, 5]]], 16)
    with pytest.raises(InputError, match="length 4 hold no text"):
        index_of([[[5], [5]]], 4)
