"""Split plain text into words as tagged corpora do (Penn Treebank, CoNLL-2003)."""

import re
from collections.abc import Iterator

_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHUNK = re.compile(rf"—+|-{{2,}}|\.{{3,}}|…|[{_IDEOGRAPHS}]|(?:(?!—|--|\.{{3}}|…)[^\s{_IDEOGRAPHS}])+")
"""Chunks that are split further only at their ends. Long dashes, ellipses and (as in BERT) ideographs are chunks."""

_MARKS = frozenset(",;:!?¡¿()[]{}<>\"'`“”„‘’‚«»‹›、。，；：！？（）「」『』《》")
_DOUBLED = ("''", "``")
_POSSESSIVE = ("'s", "’s")
_ELISION = re.compile(r"['’](?:\d\ds?|s)\b")
"""An apostrophe that isn't an opening quote: '90s, 's."""

_TITLES = "mr|mrs|ms|messrs|dr|prof|gen|col|maj|capt|lt|sgt|adm|sen|rep|gov|pres|rev|hon|st|mt|jr|sr"
_SHORTENED = "inc|corp|ltd|co|bros|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|vs|etc|cf"
_ABBREVIATION = re.compile(rf"(?:[^\W\d_]{{1,2}}\.-?)+[^\W\d_]{{1,2}}|(?i:{_TITLES}|{_SHORTENED})")
"""The part before the last dot of U.N., Ph.D., J.-P., or of a known abbreviation."""
_MAX_ABBREVIATION = 40
"""Characters of an abbreviation; bounds the regular expression search."""
_CONTINUATION = re.compile(r"[,;:]|['’][sS]\b")
_NEXT_WORD = re.compile(r"[\"'”’»)\]}>]*\s+(\w)")


def word_offsets(text: str) -> list[tuple[int, int]]:
    """The start and end of each word; together the words cover all of the text except white space.

    Quotes, brackets and , ; : ! ? are separate words at the ends of a word, and part of it inside. So is a full stop,
    unless it belongs to an abbreviation. A possessive 's is a separate word.
    """
    return [offset for chunk in _CHUNK.finditer(text) for offset in _parts(text, *chunk.span())]


def _parts(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while size := _leading_mark(text, start, stop):
        yield start, start + size
        start += size
    after, letter = [], next((index for index in range(start, stop) if text[index].isalnum()), stop)
    while size := _trailing_mark(text, start, stop, letter):
        after.append((stop - size, stop))
        stop -= size
    yield start, stop
    yield from reversed(after)


def _leading_mark(text: str, start: int, stop: int) -> int:
    """The length of the punctuation mark before a word; 0 if there is no mark or no word after it."""
    if text[start] not in _MARKS or _ELISION.match(text, start, stop):
        return 0
    size = 2 if text.startswith(_DOUBLED, start, stop) else 1
    return size if size < stop - start else 0


def _trailing_mark(text: str, start: int, stop: int, letter: int) -> int:
    """The length of the punctuation mark or 's after a word; 0 if there is no mark or no word before it.

    letter: the position of the first letter or digit.
    """
    last, pair = text[stop - 1], text[max(start, stop - 2) : stop].lower()
    if pair in _DOUBLED or pair in _POSSESSIVE:
        size = 2
    else:
        size = int(last in _MARKS or (last == "." and letter < stop and _is_full_stop(text, start, stop - 1)))
    return size if size < stop - start else 0


def _is_full_stop(text: str, start: int, stop: int) -> bool:
    """Whether the dot at `stop` ends a sentence instead of an abbreviation.

    A capitalised word with a dot is an abbreviation if the next word begins with a lower-case letter.
    """
    initial = stop - start == 1 and text[start].isupper()
    short = stop - start <= _MAX_ABBREVIATION and _ABBREVIATION.fullmatch(text, start, stop)
    if initial or short or _CONTINUATION.match(text, stop + 1):
        return False
    following = _NEXT_WORD.match(text, stop + 1)
    return not (following is not None and following[1].islower() and text[start].isupper())
