"""Encoding: chunks of documents, worker processes and the word cache."""

import multiprocessing
import os
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from lightbert.data import encoding, tokenizer
from lightbert.data.encoding import Chunk, Place, WordTable, encode_chunks, read_stream, split_chunks, splits_at_spaces
from lightbert.data.sources import Source
from lightbert.data.tokenizer import SPECIALS, train, unigram, wordpiece
from lightbert.errors import InputError

SENTENCE = r"a worker process died, perhaps because memory ran out; run the same command again with fewer --workers"


@pytest.fixture
def file(tmp_path):
    tokenizer.save(tokenizer.train(["the cat sat on the mat"], "wordpiece", 64), tmp_path)
    return tmp_path / tokenizer.FILE


def chunks(count):
    return (Chunk(["the cat"], number, ends_part=False) for number in range(count))


def test_all_chunks_are_encoded_in_order(file):
    found = list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert [chunk.mark for chunk, _ in found] == list(range(10))
    assert multiprocessing.active_children() == []


def die(*_):
    os._exit(1)


def test_workers_that_die_end_the_preparation_with_a_sentence(file, monkeypatch):
    monkeypatch.setattr(encoding, "_start", die)
    with pytest.raises(InputError, match=SENTENCE):
        list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert multiprocessing.active_children() == []


DOCUMENTS = st.lists(st.integers(1, 30).map("x".__mul__), max_size=40)


def parts_of(chunks):
    found: list[list[str]] = [[]]
    for chunk in chunks:
        found[-1] += chunk.documents
        if chunk.ends_part:
            found.append([])
    return [part for part in found if part]


@given(DOCUMENTS, st.integers(1, 200), st.integers(1, 100), st.integers(1, 100))
def test_parts_do_not_depend_on_the_size_of_chunks(documents, characters, one, other):
    results = []
    for size in (one, other):
        with mock.patch.object(encoding, "CHUNK", size):
            results.append(parts_of(list(split_chunks(((text, 0) for text in documents), characters))))
    assert results[0] == results[1]
    assert [text for part in results[0] for text in part] == documents
    assert all(sum(map(len, part)) >= characters > sum(map(len, part[:-1])) for part in results[0][:-1])


@given(DOCUMENTS, st.integers(1, 100))
def test_a_chunk_has_the_mark_of_its_last_document(documents, characters):
    marks = [
        chunk.mark for chunk in split_chunks(((text, number) for number, text in enumerate(documents)), characters)
    ]
    assert marks == sorted(marks)
    assert marks[-1:] == ([len(documents) - 1] if documents else [])


def test_a_stream_resumes_from_any_position():
    sources = [Source("a", "file", 10), Source("b", "file", 20), Source("c", "file", 30)]
    texts = {"a": [("a1", 5), ("a2", 10)], "b": [], "c": [("c1", 30)]}

    def read(source):
        return iter(texts[source.name])

    everything = list(read_stream(sources, read, Place()))
    assert everything == [("a1", Place(0, 1, 5)), ("a2", Place(0, 2, 10)), ("c1", Place(2, 1, 60))]
    for number, (_, place) in enumerate(everything, start=1):
        assert list(read_stream(sources, read, place)) == everything[number:]


CORPUS = ["The cat sat on the mat, and the dog didn't.", "Élan vital; naïve café — [SEP] ΟΔΥΣΣΕΥΣ 東京 ﬁne ½"] * 3
TOKENIZERS = {
    "wordpiece": train(CORPUS, "wordpiece", 200),
    "cased": train(CORPUS, "wordpiece", 200, lowercase=False),
    "unigram": train(CORPUS, "unigram", 120),
    "whole": Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]")),
}

# Strings that are more likely than random characters to reveal a tokenizer that is sensitive to spaces.
SENTENCES = st.lists(
    st.lists(
        st.sampled_from(
            ["The", "cat,", "'", "''", "``", "▁", "▁the", "[SEP]", "\u0301", "e\u0301", "Σ", "ΑΣ", "´", "\t"]
        )
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=5)
    ).map(" ".join),
    min_size=1,
    max_size=4,
)


def encoded_whole(tokenizer, sentences):
    return [each.ids for each in tokenizer.encode_batch(sentences, add_special_tokens=False)]


def encoded(table, sentences):
    ids, lengths = table.encode(sentences)
    return [part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(sentences=SENTENCES)
def test_cached_words_give_the_ids_of_the_whole_sentence(name, sentences):
    tokenizer = TOKENIZERS[name]
    table = WordTable(tokenizer, "uint16")
    expected = encoded_whole(tokenizer, sentences)
    assert encoded(table, sentences) == expected
    assert encoded(table, sentences) == expected


def test_a_literal_special_token_is_encoded_as_text():
    ids, _ = WordTable(TOKENIZERS["wordpiece"], "uint16").encode(["the [SEP] cat"])
    assert not set(ids.tolist()) & {SPECIALS.index("[SEP]"), SPECIALS.index("[CLS]")}


def test_clearing_the_cache_does_not_change_the_ids(monkeypatch):
    monkeypatch.setattr(encoding, "_MAX_WORDS", 3)
    table = WordTable(TOKENIZERS["wordpiece"], "uint16")
    for _ in range(3):
        assert encoded(table, CORPUS) == encoded_whole(TOKENIZERS["wordpiece"], CORPUS)


def test_an_empty_list_encodes_to_empty_arrays():
    ids, lengths = WordTable(TOKENIZERS["wordpiece"], "uint16").encode([])
    assert len(ids) == len(lengths) == 0


def test_only_tokenizers_that_split_at_spaces_use_the_cache():
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel()
    with_phrase = wordpiece({name: index for index, name in enumerate(SPECIALS)}, lowercase=True)
    with_phrase.add_tokens(["new york"])
    assert splits_at_spaces(TOKENIZERS["wordpiece"])
    assert splits_at_spaces(unigram([(name, 0.0) for name in SPECIALS], lowercase=False))
    assert not splits_at_spaces(byte_level)
    assert not splits_at_spaces(with_phrase)
