"""The word cache returns exactly the ids of the tokenizer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from lightbert.data.corpus import word_table
from lightbert.data.corpus.vocabulary import SPECIALS, train, unigram, wordpiece
from lightbert.data.corpus.word_table import WordTable, splits_at_spaces

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


def encoded_whole(tokenizer: Tokenizer, sentences: list[str]) -> list[list[int]]:
    return [each.ids for each in tokenizer.encode_batch(sentences, add_special_tokens=False)]


def encoded(table: WordTable, sentences: list[str]) -> list[list[int]]:
    ids, lengths = table.encode(sentences)
    return [part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(sentences=SENTENCES)
def test_cached_words_give_the_ids_of_the_whole_sentence(name: str, sentences: list[str]) -> None:
    tokenizer = TOKENIZERS[name]
    table = WordTable(tokenizer, "uint16")
    expected = encoded_whole(tokenizer, sentences)
    assert encoded(table, sentences) == expected
    assert encoded(table, sentences) == expected


def test_a_literal_special_token_is_encoded_as_text() -> None:
    ids, _ = WordTable(TOKENIZERS["wordpiece"], "uint16").encode(["the [SEP] cat"])
    assert not set(ids.tolist()) & {SPECIALS.index("[SEP]"), SPECIALS.index("[CLS]")}


def test_clearing_the_cache_does_not_change_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "_MAX_WORDS", 3)
    table = WordTable(TOKENIZERS["wordpiece"], "uint16")
    for _ in range(3):
        assert encoded(table, CORPUS) == encoded_whole(TOKENIZERS["wordpiece"], CORPUS)


def test_an_empty_list_encodes_to_empty_arrays() -> None:
    ids, lengths = WordTable(TOKENIZERS["wordpiece"], "uint16").encode([])
    assert len(ids) == len(lengths) == 0


def test_only_tokenizers_that_split_at_spaces_use_the_cache() -> None:
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel()
    with_phrase = wordpiece({name: index for index, name in enumerate(SPECIALS)}, lowercase=True)
    with_phrase.add_tokens(["new york"])
    assert splits_at_spaces(TOKENIZERS["wordpiece"])
    assert splits_at_spaces(unigram([(name, 0.0) for name in SPECIALS], lowercase=False))
    assert not splits_at_spaces(byte_level)
    assert not splits_at_spaces(with_phrase)
