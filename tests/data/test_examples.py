"""Builders of examples, compared with reference loops."""

import numpy as np
import pytest
from corpora import FIRST, SPECIALS, corpus, documents_of, lengths, prose, sentences
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.examples import LinePairs, Packing, Segments, SentencePairs
from lightbert.data.loader import assemble
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits


def rows(shards, length, shortest=8):
    source = corpus(shards)
    index = Packing(shortest).build(source, length, 0, 0)
    return assemble(source, index, np.arange(len(index)), SPECIALS)


def texts(made):
    """Split the rows into texts by their masks."""
    return [
        ids[mask == number].tolist()
        for ids, mask in zip(made.ids, made.mask, strict=True)
        for number in range(1, mask.max() + 1)
    ]


@given(lengths, st.integers(3, 90), st.integers(1, 10))
def test_every_token_appears_once_and_in_order(shards, length, shortest):
    ids = rows(shards, length, shortest).ids
    assert ids[ids >= FIRST].tolist() == list(range(FIRST, FIRST + len(documents_of(shards))))


@given(lengths, st.integers(3, 90))
def test_every_text_is_a_run_of_one_document_between_cls_and_sep(shards, length):
    document = documents_of(shards)
    for first, *words, last in texts(rows(shards, length)):
        assert (first, last) == (SPECIALS.cls, SPECIALS.sep)
        assert words == list(range(words[0], words[0] + len(words)))
        assert document[words[0] - FIRST] == document[words[-1] - FIRST]


@given(lengths, st.integers(3, 90))
def test_texts_are_numbered_from_one_and_padding_is_zero_on_the_right(shards, length):
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
def test_a_row_is_padded_only_before_a_text_that_would_be_too_short(shards, length, shortest):
    source = corpus(shards)
    first = 0
    for shard in range(len(shards)):
        made = rows(shards[shard : shard + 1], length, shortest)
        empty = (made.mask == 0).sum(axis=1)
        # The last row of a shard has the remaining tokens.
        assert (empty[:-1] < shortest + 2).all()
        first += len(empty)
    assert first == len(Packing(shortest).build(source, length, 0, 0))


def test_rows_of_prose_are_full():
    made = rows(prose(20_000, per_document=7), 128)
    assert (made.mask > 0).mean() > 0.99


def test_a_length_below_the_minimum_of_packed_rows_is_an_input_error():
    with pytest.raises(InputError, match="length of packed rows must be >= 3, got 2"):
        Packing().build(corpus([[[5]]]), 2, 0, 0)


Segment = list[int]


def by_loop(shards, builder, length, seed, epoch):
    """Build examples sentence by sentence, as ELECTRA does, with the random numbers of the builder."""
    for number, documents in enumerate(sentences(shards)):

        def draw(stream, sentence, number=number):
            return bits(seed, stream, epoch, number, sentence) / 2**32

        sentence = 0
        for document in documents:
            rest = list(document)
            while rest:
                first, target = sentence, length
                if (u := draw(Stream.LENGTH, first)) < builder.short:
                    target = 5 + int(u / builder.short * (length - 4))
                chunk = []
                while rest and sum(map(len, chunk)) < target:
                    chunk.append(rest.pop(0))
                    sentence += 1
                limit = 100_000 if draw(Stream.SEGMENT, first) < builder.single else (target - 3) // 2
                a: Segment = []
                b: Segment = []
                for offset, words in enumerate(chunk):
                    coin = draw(Stream.SEGMENT, first + offset) < 0.5
                    if builder.released:
                        to_first = a or len(words) < limit or (b and coin)
                    else:
                        to_first = not a or len(a) + len(words) < limit or (not b and len(a) < limit and coin)
                    (a if to_first else b).extend(words)
                a = a[: length - 2]
                yield a, b[: max(0, length - len(a) - 3)]


def segment_rows(shards, builder, length, seed=0, epoch=0):
    source = corpus(shards)
    index = builder.build(source, length, seed, epoch)
    return assemble(source, index, np.arange(len(index)), SPECIALS)


def two_segments(shards, builder):
    return float(segment_rows(shards, builder, 128).segments.any(axis=1).mean())


@given(lengths, st.booleans(), st.integers(5, 60), st.integers(0, 1 << 40), st.integers(0, 9))
def test_the_examples_equal_those_of_the_reference_loop(shards, released, length, seed, epoch):
    # Short targets and single segments are made frequent.
    builder = Segments(released=released, single=0.3, short=0.3)
    made = segment_rows(shards, builder, length, seed, epoch)
    expected = list(by_loop(shards, builder, length, seed, epoch))
    assert len(made.ids) == len(expected)
    for ids, mask, segments, (a, b) in zip(made.ids, made.mask, made.segments, expected, strict=True):
        text = [SPECIALS.cls, *a, SPECIALS.sep, *((*b, SPECIALS.sep) if b else ())]
        padding = length - len(text)
        assert padding >= 0
        assert ids.tolist() == text + [SPECIALS.pad] * padding
        assert mask.tolist() == [True] * len(text) + [False] * padding
        second = len(b) + 1 if b else 0
        assert segments.tolist() == [0] * (len(text) - second) + [1] * second + [0] * padding


@given(lengths, st.booleans(), st.integers(5, 60))
def test_no_example_crosses_documents(shards, released, length):
    document = documents_of(shards)
    for ids in segment_rows(shards, Segments(released), length).ids:
        assert len(set(document[ids[ids >= FIRST] - FIRST])) == 1


def test_89_percent_have_two_segments_and_3_percent_with_the_released_condition():
    shards = prose(40_000, per_document=40_000)
    assert two_segments(shards, Segments()) == pytest.approx(0.89, abs=0.01)
    assert two_segments(shards, Segments(released=True)) == pytest.approx(0.026, abs=0.005)


def test_a_tenth_has_no_limit_and_a_twentieth_has_a_short_target():
    shards = prose(40_000, per_document=40_000)
    full = segment_rows(shards, Segments(), 128).mask.mean(axis=1)
    # Short targets are uniform on 5…128, but one sentence can still fill a row.
    assert np.mean(full < 0.8) == pytest.approx(0.05 * 0.64, abs=0.01)
    assert two_segments(shards, Segments(single=0.0)) - two_segments(shards, Segments()) == pytest.approx(0.1, abs=0.02)


def test_another_epoch_or_seed_gives_other_examples():
    shards = prose(500, per_document=100)
    made = [segment_rows(shards, Segments(), 64, seed, epoch).segments.tobytes() for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(made)) == 4
    assert made[0] == segment_rows(shards, Segments(), 64).segments.tobytes()


def test_a_length_below_the_minimum_of_segments_is_an_input_error():
    with pytest.raises(InputError, match="length of segments must be >= 5, got 4"):
        Segments().build(corpus([[[5]]]), 4, 0, 0)


def index_of(shards, length, seed=0, epoch=0, short=0.3):
    return SentencePairs(short).build(corpus(shards), length, seed, epoch)


def pairs(shards, length, seed=0, short=0.3):
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
def test_the_second_text_follows_or_comes_from_another_document(shards, length, seed):
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
def test_short_pairs_are_complete_and_long_pairs_fill_the_row(shards, length):
    ends = FIRST + np.cumsum([size for shard in shards for document in shard for size in document])
    starts = {FIRST, *ends.tolist()}
    for a, b, is_random in pairs(shards, length):
        if len(a) + len(b) < length - 3:
            assert {a[0], b[0], a[-1] + 1, b[-1] + 1} <= starts
            assert is_random or b[0] == a[-1] + 1
        assert 0 < len(a) + len(b) <= length - 3


@given(many_documents, st.integers(5, 60))
def test_without_truncation_every_token_is_used_as_a_first_text_or_its_continuation(shards, length):
    # The rows are so long that nothing is truncated and a chunk is a whole document.
    seen = [token for a, b, is_random in pairs(shards, 4000) for token in (a if is_random else a + b)]
    total = len(documents_of(shards))
    assert set(seen) == set(range(FIRST, FIRST + total))
    assert len(seen) == total


def test_the_longer_text_is_truncated_on_both_sides_and_the_shorter_one_kept():
    made = [(a, b) for a, b, is_random in pairs([[[4, 400]] * 200], 64, short=0.0) if len(a) == 4 and not is_random]
    assert len(made) > 50
    assert {len(b) for _, b in made} == {57}
    # The number of tokens removed at the start is binomial, with n = 343 and p = 0.5.
    fronts = [(b[0] - FIRST) % 404 - 4 for _, b in made]
    assert np.mean(fronts) == pytest.approx(343 / 2, abs=3)
    assert np.std(fronts) == pytest.approx(np.sqrt(343) / 2, rel=0.3)


def test_two_long_texts_are_each_truncated_to_half_of_the_row():
    assert {(len(a), len(b)) for a, b, _ in pairs([[[500, 500]] * 20], 64)} == {(31, 30)}
    assert {(len(a), len(b)) for a, b, _ in pairs([[[500, 500]] * 20], 65)} == {(31, 31)}


def test_half_of_the_second_texts_are_drawn_from_all_other_documents():
    shards = prose(40_000, per_document=200)
    document = documents_of(shards)
    made = pairs(shards, 128, short=0.0)
    assert np.mean([is_random for *_, is_random in made]) == pytest.approx(0.5, abs=0.03)
    drawn = np.bincount([document[b[0] - FIRST] for _, b, is_random in made if is_random], minlength=200)
    assert drawn.min() > 0
    assert drawn.std() == pytest.approx(np.sqrt(drawn.mean()), rel=0.25)


def test_random_second_texts_can_come_from_other_shards():
    shards = [[[3, 3]], [[4, 4]], [[5, 5], [6, 6]]]
    document = documents_of(shards)
    met = {
        (document[a[0] - FIRST], document[b[0] - FIRST])
        for seed in range(60)
        for a, b, is_random in pairs(shards, 32, seed)
        if is_random
    }
    assert met == {(i, j) for i in range(4) for j in range(4) if i != j}


def test_another_epoch_or_seed_gives_other_pairs():
    shards = prose(500, per_document=50)
    made = [index_of(shards, 64, seed, epoch).start.tobytes() for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(made)) == 4
    assert made[0] == index_of(shards, 64).start.tobytes()


def test_a_single_document_or_a_short_length_is_an_input_error():
    with pytest.raises(InputError, match="require at least 2 documents, got 1"):
        index_of([[[5, 5]]], 16)
    with pytest.raises(InputError, match="length of sentence pairs must be >= 5, got 4"):
        index_of([[[5], [5]]], 4)


def line_rows(shards, length):
    source = corpus(shards)
    index = LinePairs().build(source, length, 0, 0)
    return assemble(source, index, np.arange(len(index)), SPECIALS)


@given(lengths, st.integers(2, 90))
def test_lines_are_paired_across_documents_and_truncated_on_the_right(shards, length):
    expected = []
    for shard in sentences(shards):
        lines = [line for document in shard for line in document]
        for a, b in zip(lines[::2], lines[1::2], strict=False):
            text = [SPECIALS.cls, *a, SPECIALS.sep, *b, SPECIALS.sep][:length]
            expected.append(text + [SPECIALS.pad] * (length - len(text)))
    made = line_rows(shards, length)
    assert made.ids.tolist() == expected
    assert made.mask.tolist() == [[token != SPECIALS.pad for token in row] for row in expected]
    assert not made.segments.any()


def test_truncation_can_remove_the_last_separator():
    for length, expected in (
        (8, [2, 10, 11, 3, 12, 13, 14, 3]),
        (7, [2, 10, 11, 3, 12, 13, 14]),
        (5, [2, 10, 11, 3, 12]),
        (4, [2, 10, 11, 3]),
        (3, [2, 10, 11]),
    ):
        # The two lines belong to different documents.
        assert line_rows([[[2], [3]]], length).ids.tolist() == [expected]


def test_the_odd_last_line_of_a_shard_is_dropped():
    assert len(line_rows([[[2, 3, 4]], [[5]]], 16).ids) == 1


def test_a_length_below_the_minimum_is_an_input_error():
    with pytest.raises(InputError, match="length of line pairs must be >= 2, got 1"):
        LinePairs().build(corpus([[[5, 5]]]), 1, 0, 0)
