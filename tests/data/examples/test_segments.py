"""ELECTRA's segments, compared with a reference loop."""

from collections.abc import Iterator

import numpy as np
import pytest
from corpora import FIRST, SPECIALS, Lengths, corpus, documents_of, lengths, prose, sentences
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.batches.assembly import assemble
from lightbert.data.examples.segments import Segments
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits

Segment = list[int]


def by_loop(
    shards: Lengths, builder: Segments, length: int, seed: int, epoch: int
) -> Iterator[tuple[Segment, Segment]]:
    """Build examples sentence by sentence, as ELECTRA does, with the random numbers of the builder."""
    for number, documents in enumerate(sentences(shards)):

        def draw(stream: Stream, sentence: int, number: int = number) -> float:
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


def rows(shards: Lengths, builder: Segments, length: int, seed: int = 0, epoch: int = 0):
    source = corpus(shards)
    index = builder.build(source, length, seed, epoch)
    return assemble(source, index, np.arange(len(index)), SPECIALS)


def two_segments(shards: Lengths, builder: Segments) -> float:
    return float(rows(shards, builder, 128).segments.any(axis=1).mean())


@given(lengths, st.booleans(), st.integers(5, 60), st.integers(0, 1 << 40), st.integers(0, 9))
def test_the_examples_equal_those_of_the_reference_loop(
    shards: Lengths, released: bool, length: int, seed: int, epoch: int
) -> None:
    # Short targets and single segments are made frequent.
    builder = Segments(released=released, single=0.3, short=0.3)
    made = rows(shards, builder, length, seed, epoch)
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
def test_no_example_crosses_documents(shards: Lengths, released: bool, length: int) -> None:
    document = documents_of(shards)
    for ids in rows(shards, Segments(released), length).ids:
        assert len(set(document[ids[ids >= FIRST] - FIRST])) == 1


def test_89_percent_have_two_segments_and_3_percent_with_the_released_condition() -> None:
    shards = prose(40_000, per_document=40_000)
    assert two_segments(shards, Segments()) == pytest.approx(0.89, abs=0.01)
    assert two_segments(shards, Segments(released=True)) == pytest.approx(0.026, abs=0.005)


def test_a_tenth_has_no_limit_and_a_twentieth_has_a_short_target() -> None:
    shards = prose(40_000, per_document=40_000)
    full = rows(shards, Segments(), 128).mask.mean(axis=1)
    # Short targets are uniform on 5…128, but one sentence can still fill a row.
    assert np.mean(full < 0.8) == pytest.approx(0.05 * 0.64, abs=0.01)
    assert two_segments(shards, Segments(single=0.0)) - two_segments(shards, Segments()) == pytest.approx(0.1, abs=0.02)


def test_another_epoch_or_seed_gives_other_examples() -> None:
    shards = prose(500, per_document=100)
    made = [rows(shards, Segments(), 64, seed, epoch).segments.tobytes() for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(made)) == 4
    assert made[0] == rows(shards, Segments(), 64).segments.tobytes()


def test_a_length_below_the_minimum_is_an_input_error() -> None:
    with pytest.raises(InputError, match="length of segments must be >= 5, got 4"):
        Segments().build(corpus([[[5]]]), 4, 0, 0)
