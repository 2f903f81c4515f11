"""Windows over contexts, and targets within them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import encoder

from lightbert.errors import InputError
from lightbert.tasks.example import Answer, Question
from lightbert.tasks.kinds.spans import Spans, char_span, encode, split_windows, token_span

CAT = Question("Who sat?", "The cat sat on the mat.", (Answer("cat", 4),), "q")


def rows(features):
    return [part.tolist() for part in np.split(features.tokens, features.starts[1:-1])]


def tokens(features, using):
    return [[using.tokenizer.id_to_token(token) for token in row] for row in rows(features)]


def test_a_row_is_cls_question_sep_window_sep():
    using = encoder(20)
    features = encode([CAT], using, stride=4, max_query=8)
    (row,) = rows(features)
    question, context = (each.ids for each in using.pieces([CAT.question, CAT.context]))
    assert row == [using.specials.cls, *question, using.specials.sep, *context, using.specials.sep]
    assert features.seconds.tolist() == [len(question) + 2]
    assert features.sources.tolist() == [0]


def test_windows_begin_every_stride_until_the_context_is_covered():
    assert list(split_windows(10, 5, 2)) == [(0, 5), (2, 5), (4, 5), (6, 4)]
    assert list(split_windows(10, 5, 9)) == [(0, 5), (5, 5)]
    assert list(split_windows(5, 5, 2)) == [(0, 5)]
    assert list(split_windows(0, 5, 2)) == [(0, 0)]


@given(count=st.integers(0, 60), room=st.integers(1, 20), stride=st.integers(1, 25))
def test_windows_cover_every_token_and_fit(count, room, stride):
    found = list(split_windows(count, room, stride))
    assert {token for first, size in found for token in range(first, first + size)} == set(range(count))
    assert all(size <= room for _, size in found)
    assert [first for first, _ in found] == sorted({first for first, _ in found})


def test_a_long_question_is_truncated_and_counted():
    using = encoder(30)
    long = Question("the cat sat on the mat", CAT.context, ())
    features = encode([long, CAT], using, stride=8, max_query=3)
    assert tokens(features, using)[0][:5] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert features.cut == 1


def test_a_truncated_question_with_several_windows_counts_once():
    using = encoder(10)
    features = encode([replace(CAT, question="the cat sat on the mat")], using, stride=1, max_query=3)
    assert len(features.sources) > 1
    assert features.cut == 1
    assert Spans(max_query=3).most_tokens(using.length) == 3


def test_a_context_is_tokenized_once_for_all_its_questions():
    using = encoder(30)
    texts = []
    tokenize = using.pieces
    using.pieces = lambda some: texts.extend(some) or tokenize(some)
    encode([CAT, Question("On what?", CAT.context), Question("Who?", "A dog.")], using, stride=8, max_query=8)
    assert texts.count(CAT.context) == 1


def test_targets_point_at_the_answer():
    using = encoder(30)
    features = encode([CAT], using, stride=8, max_query=8)
    ((start, end, impossible),) = features.targets.tolist()
    assert tokens(features, using)[0][start : end + 1] == ["cat"]
    assert impossible == 0


def test_a_window_without_the_whole_answer_points_at_cls():
    answer = Answer("the dog", 28)
    question = Question("Who?", "The cat sat on the mat, and the dog didn't see it.", (answer,))
    assert question.context[28:35] == "the dog"
    using = encoder(11)
    features = encode([question], using, stride=2, max_query=3)
    assert len(features) > 4
    for row, (start, end, impossible) in zip(tokens(features, using), features.targets.tolist(), strict=True):
        found = row[start : end + 1]
        assert found == (["the", "dog"] if "the dog" in " ".join(row) else ["[CLS]"])
        assert impossible == 0
    assert {tuple(each) for each in features.targets.tolist()} > {(0, 0, 0)}


def test_an_unanswerable_question_is_impossible_in_every_window():
    features = encode([Question("Who?", CAT.context, ())], encoder(9), stride=2, max_query=3)
    assert len(features) > 1
    assert features.targets.tolist() == [[0, 0, 1]] * len(features)


def test_the_first_of_several_answers_is_the_target():
    using = encoder(30)
    question = Question("Where?", CAT.context, (Answer("mat", 19), Answer("the mat", 15)))
    ((start, end, _),) = encode([question], using, stride=8, max_query=8).targets.tolist()
    assert end == start


def test_targets_are_absent_when_an_answer_is_unknown():
    assert encode([CAT, Question("Who?", "A dog.")], encoder(30), stride=8, max_query=8).targets is None


def test_an_answer_inside_a_word_maps_to_the_piece_that_contains_it():
    using = encoder(30)
    question = Question("What?", "On the mats.", (Answer("mat", 7),))
    features = encode([question], using, stride=8, max_query=8)
    ((start, end, _),) = features.targets.tolist()
    assert "".join(tokens(features, using)[0][start : end + 1]).replace("##", "").startswith("mat")


def test_a_missing_answer_is_an_error_that_names_the_question():
    wrong = Question("Who?", CAT.context, (Answer("dog", 4),), "q9")
    with pytest.raises(
        InputError, match="the answer 'dog' of the question 'q9' must occur in its context at character 4"
    ):
        encode([wrong], encoder(30), stride=8, max_query=8)


def test_an_empty_context_has_one_row():
    features = encode([Question("Who?", "", ()), CAT], encoder(30), stride=8, max_query=8)
    assert features.sources.tolist() == [0, 1]
    assert features.lengths[0] == features.seconds[0] + 1


def test_no_questions_give_no_rows():
    features = encode([], encoder(30), stride=8, max_query=8)
    assert (len(features), features.targets.shape) == (0, (0, 3))


def test_a_length_without_room_for_the_context_is_an_error():
    with pytest.raises(
        InputError, match=r"length must be >= answers\.max_query \+ 4 = 68 to leave room for a context, got 66"
    ):
        encode([CAT], encoder(66), stride=8, max_query=64)


def test_token_spans_map_back_to_the_exact_characters():
    for name, context, answer in [
        ("wordpiece", "In the café it was.", "café"),
        ("wordpiece", "In the cafe\u0301 it was.", "cafe\u0301"),
        ("wordpiece", "In the ca\u00adfe\u200d it was.", "ca\u00adfe\u200d"),
        ("wordpiece", "東京cat", "京"),
        ("wordpiece", "In\u3000THE\u00a0cafe.", "THE\u00a0cafe"),
        ("cased", "In the cafe\u0301.", "cafe\u0301"),
        ("unigram", "In the cafe\u0301 it was.", "cafe\u0301"),
        ("unigram", "  The  dog sat", "dog"),
        ("unigram", "½ ﬁ the", "½"),
    ]:
        start = context.index(answer)
        (encoding,) = encoder(30, name).pieces([context])
        offsets = np.array(encoding.offsets, dtype=np.int32)
        first, last = token_span(offsets, start, start + len(answer))
        assert char_span(context, offsets, first, last) == (start, start + len(answer))


def test_characters_without_a_token_have_no_token_span():
    question = Question("What?", "the \u200d cat", (Answer("\u200d", 4),))
    assert encode([question], encoder(30), stride=8, max_query=8).targets.tolist() == [[0, 0, 0]]
