"""The words of a running text, split as in the corpora that taggers learn from (the Penn Treebank, CoNLL-2003)."""

import re
from collections.abc import Iterator

_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHUNK = re.compile(rf"—+|-{{2,}}|\.{{3,}}|…|[{_IDEOGRAPHS}]|(?:(?!—|--|\.{{3}}|…)[^\s{_IDEOGRAPHS}])+")
"""What is split at its ends only. Long dashes and dots stand alone, and so do ideographs, as BERT has them."""

_MARKS = frozenset(",;:!?¡¿()[]{}<>\"'`“”„‘’‚«»‹›、。，；：！？（）「」『』《》")
_DOUBLED = ("''", "``")
_POSSESSIVE = ("'s", "’s")
_ELISION = re.compile(r"['’](?:\d\ds?|s)\b")
"""An apostrophe that opens no quotation: '90s, 's."""

_TITLES = "mr|mrs|ms|messrs|dr|prof|gen|col|maj|capt|lt|sgt|adm|sen|rep|gov|pres|rev|hon|st|mt|jr|sr"
_OTHERS = "inc|corp|ltd|co|bros|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|vs|etc|cf"
_ABBREVIATION = re.compile(rf"(?:[^\W\d_]{{1,2}}\.-?)+[^\W\d_]{{1,2}}|(?i:{_TITLES}|{_OTHERS})")
"""What stands before the last dot of U.N., Ph.D., J.-P., or of a word that is known to be shortened."""
_LONGEST = 40
"""Letters and dots of an abbreviation; what is longer is none, and not worth the search."""
_GOES_ON = re.compile(r"[,;:]|['’][sS]\b")
_NEXT_WORD = re.compile(r"[\"'”’»)\]}>]*\s+(\w)")


def word_extents(text: str) -> list[tuple[int, int]]:
    """Where each word begins and where it has ended; together they are all of the text but its white space.

    Quotes, brackets and , ; : ! ? are words of their own at the ends of a word, and part of it inside. So is a full
    stop, unless it belongs to an abbreviation. A possessive 's is a word too.
    """
    return [extent for chunk in _CHUNK.finditer(text) for extent in _parts(text, *chunk.span())]


def _parts(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while size := _mark_before(text, start, stop):
        yield start, start + size
        start += size
    after, letter = [], next((place for place in range(start, stop) if text[place].isalnum()), stop)
    while size := _mark_after(text, start, stop, letter):
        after.append((stop - size, stop))
        stop -= size
    yield start, stop
    yield from reversed(after)


def _mark_before(text: str, start: int, stop: int) -> int:
    """The length of the mark that stands before a word; 0 if there is none, or no word."""
    if text[start] not in _MARKS or _ELISION.match(text, start, stop):
        return 0
    size = 2 if text.startswith(_DOUBLED, start, stop) else 1
    return size if size < stop - start else 0


def _mark_after(text: str, start: int, stop: int, letter: int) -> int:
    """The length of the mark, or of the 's, that stands after a word; 0 if there is none, or no word.

    letter: where the first letter or digit is.
    """
    last, pair = text[stop - 1], text[max(start, stop - 2) : stop].lower()
    if pair in _DOUBLED or pair in _POSSESSIVE:
        size = 2
    else:
        size = int(last in _MARKS or (last == "." and letter < stop and _is_full_stop(text, start, stop - 1)))
    return size if size < stop - start else 0


def _is_full_stop(text: str, start: int, stop: int) -> bool:
    """Whether the dot at `stop` ends the sentence, and not just the word before it.

    A capitalised word with a dot is taken for an abbreviation if the next word begins with a small letter.
    """
    initial = stop - start == 1 and text[start].isupper()
    short = stop - start <= _LONGEST and _ABBREVIATION.fullmatch(text, start, stop)
    if initial or short or _GOES_ON.match(text, stop + 1):
        return False
    following = _NEXT_WORD.match(text, stop + 1)
    return not (following is not None and following[1].islower() and text[start].isupper())
