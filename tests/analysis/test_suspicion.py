"""Suspicion of words and corrupted sentences, for a model with random weights."""

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from extras import needs_plots
from lightbert.analysis.suspicion import CorruptedSentence, Detector, Word, corrupt, score_corrupted
from lightbert.errors import InputError
from lightbert.models import build
from lightbert.models.convbert import ConvBert

ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "list", "re", "##turn", "##s", ".", "of", "words"]
ID = {entry: number for number, entry in enumerate(ENTRIES)}


@pytest.fixture(scope="module")
def detector():
    torch.manual_seed(0)
    config = ConvBert(vocab=len(ENTRIES), positions=16, narrow=8, width=8, depth=1, n_heads=2, inner=16)
    model = build(config, heads={"rtd": {}})
    model.tokenizer = Tokenizer(WordPiece(dict(ID), unk_token="[UNK]"))
    return Detector(model)


def sentence(detector, *entries):
    return detector.words(ID[entry] for entry in entries)


def test_continuation_tokens_are_joined_to_their_word(detector):
    words = sentence(detector, "re", "##turn", "##s", "the", "list", ".")
    assert [word.text for word in words] == ["returns", "the", "list", "."]
    assert words[0].tokens == (ID["re"], ID["##turn"], ID["##s"])


def test_the_suspicion_of_a_word_is_the_maximum_over_its_tokens(detector):
    [words] = detector.score([sentence(detector, "re", "##turn", "##s", "the", "list")])
    ids = torch.tensor([[ID[entry] for entry in ("[CLS]", "re", "##turn", "##s", "the", "list", "[SEP]")]])
    with torch.no_grad():
        probabilities = torch.sigmoid(detector.model.heads["rtd"](detector.model(ids)))[0].tolist()
    assert [word.suspicion for word in words] == pytest.approx(
        [max(probabilities[1:4]), probabilities[4], probabilities[5]]
    )


def test_padding_does_not_change_the_suspicion_of_a_sentence(detector):
    short, long = (
        sentence(detector, "the", "list"),
        sentence(detector, "re", "##turn", "##s", "the", "list", "of", "words"),
    )
    padded, _ = detector.score([short, long])
    [alone] = detector.score([short])
    assert [word.suspicion for word in padded] == pytest.approx([word.suspicion for word in alone], abs=1e-5)


def test_exactly_one_word_is_replaced_by_a_word_that_the_sentence_does_not_contain(detector):
    sentences = [
        sentence(detector, "the", "list", "."),
        sentence(detector, "re", "##turn", "words", "."),
        sentence(detector, "of"),
    ]
    for seed in range(20):
        for before, corrupted in zip(sentences, corrupt(sentences, seed), strict=True):
            changed = [
                place for place, pair in enumerate(zip(before, corrupted.words, strict=True)) if pair[0] != pair[1]
            ]
            assert changed == [corrupted.place]
            assert corrupted.original == before[corrupted.place].text != "."
            assert corrupted.words[corrupted.place].text not in {word.text for word in before} | {"."}


def test_the_same_seed_replaces_the_same_words(detector):
    sentences = [sentence(detector, "the", "list", "of"), sentence(detector, "re", "##turn", "words")]
    assert corrupt(sentences, 3) == corrupt(sentences, 3)


def test_the_rank_counts_the_words_that_are_more_suspicious():
    words = tuple(Word((0,), text, suspicion) for text, suspicion in (("a", 0.2), ("b", 0.9), ("c", 0.5)))
    assert [CorruptedSentence(words, place, "x").rank for place in range(3)] == [3, 1, 2]


def test_every_word_of_a_corrupted_sentence_gets_a_suspicion(detector):
    [corrupted] = corrupt([sentence(detector, "the", "list", "of"), sentence(detector, "words", ".")], 0)[:1]
    [scored] = score_corrupted(detector, [corrupted])
    assert all(0 < word.suspicion < 1 for word in scored.words)
    assert [word.tokens for word in scored.words] == [word.tokens for word in corrupted.words]


def test_a_model_without_an_rtd_head_raises_an_error(detector):
    with pytest.raises(InputError, match="needs an rtd head and a tokenizer"):
        Detector(build(detector.model.config))


@needs_plots
def test_the_figure_shows_every_word_with_its_suspicion_and_frames_the_replaced_one():
    from lightbert.analysis.suspicion import plot_suspicion

    words = tuple(Word((0,), text, suspicion) for text, suspicion in (("the", 0.02), ("$x", 0.91), (".", 0.0)))
    [panel] = plot_suspicion([CorruptedSentence(words, 1, "list")], "title").axes
    texts = [text.get_text() for text in panel.texts]
    assert texts == ["title", "the", "2", "$x", "91", ".", "0", "  was: list"]
    alphas, frames = zip(
        *((patch.get_facecolor()[3], patch.get_edgecolor()[3]) for patch in panel.patches), strict=True
    )
    assert alphas == (0.02, 0.91, 0.0)
    assert frames == (0, 1, 0)
