"""Token classification: pieces and targets, windows, predictions with character offsets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.tokenizer import SPECIALS, unigram, wordpiece
from lightbert.errors import InputError
from lightbert.tasks.example import Example, TaggedSentence, TextEncoder
from lightbert.tasks.kinds import kind_of
from lightbert.tasks.kinds.tokens import Tokens, word_windows

PIECES = [*SPECIALS, "jim", "lives", "in", "new", "york", "##er", "##s", ".", ",", "u", "n", "a", "##a"]
TAGS = Tokens(("B-LOC", "B-PER", "I-LOC", "O"))


def encoder(length: int = 16) -> TextEncoder:
    return TextEncoder(wordpiece({piece: number for number, piece in enumerate(PIECES)}, lowercase=True), length)


def pieces(features, row: int) -> list[str]:
    return [PIECES[token] for token in features.tokens[features.starts[row] : features.starts[row + 1]]]


def outputs_for(features, tags: list[str], kind: Tokens = TAGS):
    """Outputs that predict `tags`, one per word, and B-PER for all other pieces."""
    logits = np.zeros((len(features.tokens), len(kind.labels)), np.float32)
    logits[:, 1] = 9.0
    logits[features.first_pieces] = np.eye(len(kind.labels), dtype=np.float32)[[kind.labels.index(tag) for tag in tags]]
    return [(each,) for each in np.split(logits, features.starts[1:-1])]


def test_the_first_piece_of_a_word_has_its_tag_and_other_pieces_are_ignored():
    sentence = TaggedSentence(("Jim", "New", "Yorkers", "."), ("B-PER", "B-LOC", "I-LOC", "O"))
    features = TAGS.features([sentence], encoder())
    assert pieces(features, 0) == ["[CLS]", "jim", "new", "york", "##er", "##s", ".", "[SEP]"]
    assert features.targets.tolist() == [-100, 1, 0, 2, -100, -100, 3, -100]
    assert features.per_token
    assert features.seconds.tolist() == [8]
    assert features.cut == 0


def test_a_word_without_pieces_has_a_tag():
    features = TAGS.features([TaggedSentence(("Jim", "\u0007", ""), ("B-PER", "O", "O"))], encoder())
    assert pieces(features, 0) == ["[CLS]", "jim", "[UNK]", "[UNK]", "[SEP]"]
    assert features.targets.tolist() == [-100, 1, 3, 3, -100]


def test_a_sentence_without_words_is_a_row_of_special_tokens():
    examples = [TaggedSentence((), ()), Example("")]
    features = TAGS.features(examples, encoder())
    assert [pieces(features, row) for row in range(2)] == [["[CLS]", "[SEP]"]] * 2
    assert TAGS.predictions(examples, features, outputs_for(features, [])) == [{"tags": [], "spans": []}] * 2


def test_targets_require_all_tags():
    known, unknown = TaggedSentence(("Jim",), ("B-PER",)), TaggedSentence(("Jim",))
    assert TAGS.features([known, unknown], encoder()).targets is None
    assert TAGS.features([known, Example("Jim")], encoder()).targets is None


@given(st.lists(st.integers(1, 7), max_size=40), st.integers(7, 20))
def test_windows_predict_every_word_once_and_fit_the_row(sizes, room):
    windows = word_windows(sizes, room)
    assert [word for window in windows for word in range(window.first, window.last)] == list(range(len(sizes)))
    for window in windows:
        assert window.start <= window.first <= window.last <= window.stop
        assert sum(sizes[window.start : window.stop]) <= room


def test_neighbouring_windows_overlap_and_predict_the_half_nearer_to_their_centre():
    assert word_windows([1] * 14, 8) == [(0, 8, 0, 7), (6, 14, 7, 14)]


@given(st.lists(st.sampled_from(["Jim", "Yorkers", "\u0007", "in", "aaaaaaaaaaaa"]), max_size=40), st.integers(4, 12))
def test_every_word_is_predicted_however_short_the_rows_are(words, length):
    tags = [("O", "B-PER", "B-LOC")[number % 3] for number in range(len(words))]
    examples = [TaggedSentence(tuple(words), tuple(tags)), Example(" ".join(words).replace("\u0007", ""))]
    features = TAGS.features(examples, encoder(length))
    assert features.lengths.max() <= length
    known = TAGS.features(examples[:1], encoder(length))
    assert known.targets[known.targets != -100].tolist() == [TAGS.labels.index(tag) for tag in tags]
    raw = [word for word in words if word != "\u0007"]
    found, in_text = TAGS.predictions(examples, features, outputs_for(features, [*tags, *["O"] * len(raw)]))
    assert [word["text"] for word in found["tags"]] == words
    assert [word["tag"] for word in found["tags"]] == tags
    assert [word["text"] for word in in_text["tags"]] == raw


def test_a_word_longer_than_the_row_is_truncated_and_counted():
    features = TAGS.features([TaggedSentence(("aaaaaa", "in"), ("O", "O"))], encoder(5))
    assert [pieces(features, row)[1:-1] for row in range(2)] == [["a", "##a", "##a"], ["in"]]
    assert features.cut == 1
    assert features.sources.tolist() == [0, 0]


def test_a_sentence_with_several_truncated_words_counts_once():
    features = TAGS.features([TaggedSentence(("aaaaaa", "aaaaaa", "in"), ("O", "O", "O"))], encoder(5))
    assert features.sources.tolist() == [0, 0, 0]
    assert features.cut == 1


def test_predictions_have_character_offsets():
    text = "Jim  lives in\nNew Yorkers."
    features = TAGS.features([Example(text)], encoder())
    tags = ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"]
    (prediction,) = TAGS.predictions([Example(text)], features, outputs_for(features, tags))
    assert [word["text"] for word in prediction["tags"]] == ["Jim", "lives", "in", "New", "Yorkers", "."]
    assert prediction["spans"] == [
        {"type": "PER", "text": "Jim", "start": 0, "end": 3},
        {"type": "LOC", "text": "New Yorkers", "start": 14, "end": 25},
    ]
    for word in prediction["tags"]:
        assert text[word["start"] : word["end"]] == word["text"]
        assert word["probability"] == pytest.approx(np.e / (np.e + 3))


def test_offsets_refer_to_the_original_text_not_the_normalized_one():
    text = "Ñéw \u0007York"
    (prediction,) = TAGS.predictions([Example(text)], *_sure(text, ["B-LOC", "I-LOC"]))
    assert [(word["text"], word["start"], word["end"]) for word in prediction["tags"]] == [
        ("Ñéw", 0, 3),
        ("\u0007York", 4, 9),
    ]


def _sure(text: str, tags: list[str]):
    features = TAGS.features([Example(text)], encoder())
    return features, outputs_for(features, tags)


def test_sentencepiece_words_exclude_the_leading_space():
    letters = [(letter, -3.0) for letter in "▁abcdefghijklmnopqrstuvwxyz"]
    tokenizer = unigram([*((name, 0.0) for name in SPECIALS), *letters, ("▁jim", -1.0)], lowercase=True)
    features = TAGS.features([Example("Jim  lives")], TextEncoder(tokenizer, 16))
    assert features.offsets.tolist() == [[0, 3], [5, 10]]


def test_offsets_of_a_sentence_in_words_refer_to_words_joined_by_spaces():
    sentence = TaggedSentence(("New", "York", "."))
    features = TAGS.features([sentence], encoder())
    (prediction,) = TAGS.predictions([sentence], features, outputs_for(features, ["B-LOC", "I-LOC", "O"]))
    assert prediction["spans"] == [{"type": "LOC", "text": "New York", "start": 0, "end": 8}]


def test_the_first_metric_is_span_f1_for_entities_and_accuracy_for_other_tags():
    sentence = TaggedSentence(("New", "York"), ("B-LOC", "I-LOC"))
    features = TAGS.features([sentence], encoder())
    predictions = TAGS.predictions([sentence], features, outputs_for(features, ["B-LOC", "O"]))
    assert list(TAGS.metrics([sentence], predictions).items()) == [
        ("f1", 0.0),
        ("precision", 0.0),
        ("recall", 0.0),
        ("accuracy", 0.5),
    ]
    speech = Tokens(("ADJ", "NOUN"))
    assert speech.metrics([TaggedSentence(("a", "n"), ("ADJ", "NOUN"))], [{"tags": [{"tag": "ADJ"}] * 2}]) == {
        "accuracy": 0.5
    }


def test_tags_without_entities_give_no_spans():
    speech = Tokens(("ADJ", "NOUN"))
    features = speech.features([Example("new york")], encoder())
    (prediction,) = speech.predictions([Example("new york")], features, outputs_for(features, ["ADJ", "NOUN"], speech))
    assert prediction["spans"] == []


def test_the_kind_is_restored_from_its_description():
    assert kind_of(TAGS.description() | {"task": "tokens", "length": 128}) == TAGS
    assert TAGS.head_settings() == {"labels": 4}


def test_invalid_tagging_input_is_an_error():
    with pytest.raises(InputError, match="unknown tag 'B-PRE'; did you mean 'B-PER'"):
        TAGS.features([TaggedSentence(("Jim",), ("B-PRE",))], encoder())
    with pytest.raises(InputError, match="2 tags for 1 words"):
        TAGS.features([TaggedSentence(("Jim",), ("O", "O"))], encoder())
    with pytest.raises(InputError, match="requires a single text, got a pair"):
        TAGS.features([Example("Jim", "lives")], encoder())
    with pytest.raises(InputError, match="require sentences with tags"):
        TAGS.metrics([TaggedSentence(("Jim",))], [{"tags": []}])
    with pytest.raises(InputError, match="at least two distinct names"):
        Tokens(("O",))
