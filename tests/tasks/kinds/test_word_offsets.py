"""Splitting plain text into words."""

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from vocabularies import small_tokenizer

from lightbert.tasks.example import Example, TaggedSentence, TextEncoder
from lightbert.tasks.kinds.tokens import Tokens, word_offsets

PAGE = Path(__file__).parents[3] / "docs" / "prediction.md"


def words(text: str) -> list[str]:
    return [text[start:stop] for start, stop in word_offsets(text)]


def test_words_are_split_as_in_tagged_corpora():
    for text, expected in [
        ("The U.N. met in the U.S., said Mr. J. Smith.", "The U.N. met in the U.S. , said Mr. J. Smith ."),
        ("Germany's hope, it's said: none!", "Germany 's hope , it 's said : none !"),
        ("O'Neil’s well-known workers' club didn't move", "O'Neil ’s well-known workers ' club didn't move"),
        ('He said: "Go (now)."', 'He said : " Go ( now ) . "'),
        ("“Why?” question_entry ‘Jim’; no one knew.", "“ Why ? ” question_entry ‘ Jim ’ ; no one knew ."),
        ("``Well,'' he said.", "`` Well , '' he said ."),
        ("at 3 p.m. on Jan. 5, 1996.", "at 3 p.m. on Jan. 5 , 1996 ."),
        ("Prof. A. B. Lee, Ph.D., J.-P. Roy, etc., left.", "Prof. A. B. Lee , Ph.D. , J.-P. Roy , etc. , left ."),
        ("the '90s: $1.5 or 1,000 at 3:30 (50%)", "the '90s : $1.5 or 1,000 at 3:30 ( 50% )"),
        ("mr. smith of the u.n. left.", "mr. smith of the u.n. left ."),
    ]:
        assert words(text) == expected.split()


def test_a_full_stop_is_a_word_at_the_end_of_a_sentence():
    for text, expected in [
        ("He left. She stayed.", ["He", "left", ".", "She", "stayed", "."]),
        ("he left. she stayed.", ["he", "left", ".", "she", "stayed", "."]),
        ("Acme Plc. said so.", ["Acme", "Plc.", "said", "so", "."]),
        ("Acme Plc. Then", ["Acme", "Plc", ".", "Then"]),
        ('(by Acme Plc.") said', ["(", "by", "Acme", "Plc.", '"', ")", "said"]),
        ("Plc.'s Plc., plan a.", ["Plc.", "'s", "Plc.", ",", "plan", "a", "."]),
        ("Yahoo!'s 'S&P'", ["Yahoo", "!", "'s", "'", "S&P", "'"]),
    ]:
        assert words(text) == expected


def test_punctuation_without_words_and_words_without_spaces_are_split():
    for text, expected in [
        ("", []),
        (" \n\t ", []),
        (". .. ... …", [".", "..", "...", "…"]),
        ("\" '' ' 's ?!", ['"', "''", "'", "'s", "?", "!"]),
        ("Jim—who--ran...", ["Jim", "—", "who", "--", "ran", "..."]),
        ("北京，2008年。", ["北", "京", "，", "2008", "年", "。"]),
        ("a\u00a0b\u2003c", ["a", "b", "c"]),
    ]:
        assert words(text) == expected


pieces_of_text = st.lists(st.sampled_from([*"aBé7.,'’\"()-–—…`$\x07\u200b北 \n", "'s", "U.S.", "Mr.", "...", "''"]))


@given(st.text() | pieces_of_text.map("".join))
def test_words_are_in_order_and_cover_all_characters_except_white_space(text):
    offsets = word_offsets(text)
    assert all(start < stop for start, stop in offsets)
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(offsets))
    inside = {place for start, stop in offsets for place in range(start, stop)}
    assert inside == {place for place, character in enumerate(text) if not character.isspace()}


@given(st.text() | pieces_of_text.map("".join))
def test_a_text_is_encoded_like_the_sentence_of_its_words(text):
    kind, encoder = Tokens(("O", "B-X")), TextEncoder(small_tokenizer(), 16)
    raw, given_in_words = (
        kind.features([each], encoder) for each in (Example(text), TaggedSentence(tuple(words(text))))
    )
    assert raw.tokens.tolist() == given_in_words.tokens.tolist()
    assert raw.first_pieces.tolist() == given_in_words.first_pieces.tolist()


def test_a_long_run_of_punctuation_is_split_completely():
    assert len(word_offsets("word" + ".)" * 50_000)) == 100_001


def test_the_example_on_the_page_is_correct():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    text, split = (line.strip() for line in lines if line.startswith("    The "))
    assert words(text) == split.split("  ")
