"""Words, suspicion and planted words, on a model with random weights."""

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from lightbert.analysis.suspicion import Planted, Reader, Word, find, plant
from lightbert.errors import InputError
from lightbert.models import build
from lightbert.models.convbert import ConvBert

ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "list", "re", "##turn", "##s", ".", "of", "words"]
ID = {entry: number for number, entry in enumerate(ENTRIES)}


@pytest.fixture(scope="module")
def reader():
    torch.manual_seed(0)
    config = ConvBert(vocab=len(ENTRIES), positions=16, narrow=8, width=8, depth=1, n_heads=2, inner=16)
    model = build(config, heads={"rtd": {}})
    model.tokenizer = Tokenizer(WordPiece(dict(ID), unk_token="[UNK]"))
    return Reader(model)


def sentence(reader, *entries):
    return reader.words(ID[entry] for entry in entries)


def test_tokens_that_go_on_with_a_word_belong_to_it(reader):
    words = sentence(reader, "re", "##turn", "##s", "the", "list", ".")
    assert [word.text for word in words] == ["returns", "the", "list", "."]
    assert words[0].tokens == (ID["re"], ID["##turn"], ID["##s"])


def test_a_word_is_as_suspicious_as_its_most_suspicious_token(reader):
    [words] = reader.suspect([sentence(reader, "re", "##turn", "##s", "the", "list")])
    ids = torch.tensor([[ID[entry] for entry in ("[CLS]", "re", "##turn", "##s", "the", "list", "[SEP]")]])
    with torch.no_grad():
        chances = torch.sigmoid(reader.model.heads["rtd"](reader.model(ids)))[0].tolist()
    assert [word.suspicion for word in words] == pytest.approx([max(chances[1:4]), chances[4], chances[5]])


def test_a_sentence_is_judged_alike_alone_and_beside_longer_ones(reader):
    short, long = sentence(reader, "the", "list"), sentence(reader, "re", "##turn", "##s", "the", "list", "of", "words")
    beside, _ = reader.suspect([short, long])
    [alone] = reader.suspect([short])
    assert [word.suspicion for word in beside] == pytest.approx([word.suspicion for word in alone], abs=1e-5)


def test_exactly_one_word_is_planted_and_it_was_not_there_before(reader):
    sentences = [
        sentence(reader, "the", "list", "."),
        sentence(reader, "re", "##turn", "words", "."),
        sentence(reader, "of"),
    ]
    for seed in range(20):
        for before, planted in zip(sentences, plant(sentences, seed), strict=True):
            changed = [
                place for place, pair in enumerate(zip(before, planted.words, strict=True)) if pair[0] != pair[1]
            ]
            assert changed == [planted.place]
            assert planted.original == before[planted.place].text != "."
            assert planted.words[planted.place].text not in {word.text for word in before} | {"."}


def test_the_same_seed_plants_the_same_words(reader):
    sentences = [sentence(reader, "the", "list", "of"), sentence(reader, "re", "##turn", "words")]
    assert plant(sentences, 3) == plant(sentences, 3)


def test_the_rank_counts_the_words_that_are_more_suspicious():
    words = tuple(Word((0,), text, suspicion) for text, suspicion in (("a", 0.2), ("b", 0.9), ("c", 0.5)))
    assert [Planted(words, place, "x").rank for place in range(3)] == [3, 1, 2]


def test_finding_gives_every_word_its_suspicion(reader):
    [planted] = plant([sentence(reader, "the", "list", "of"), sentence(reader, "words", ".")], 0)[:1]
    [found] = find(reader, [planted])
    assert all(0 < word.suspicion < 1 for word in found.words)
    assert [word.tokens for word in found.words] == [word.tokens for word in planted.words]


def test_a_model_that_was_not_trained_to_tell_replaced_words_is_refused(reader):
    with pytest.raises(InputError, match="needs an rtd head and a tokenizer"):
        Reader(build(reader.model.config))
