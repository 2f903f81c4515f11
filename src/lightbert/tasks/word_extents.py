"""The words of a running text, split as corpora are whose words have tags (CoNLL-2003, the Penn Treebank)."""

import re
from collections.abc import Iterator

_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHUNK = re.compile(rf"—+|-{{2,}}|\.{{3,}}|…|[{_IDEOGRAPHS}]|(?:(?!—|--|\.{{3}}|…)[^\s{_IDEOGRAPHS}])+")
"""What may be split further only at its ends. Dashes and dots that part words stand alone, and so do ideographs, which
are written without spaces."""

_MARKS = frozenset(",;:!?¡¿()[]{}<>\"'`“”„‘’‚«»‹›、。，；：！？（）「」『』《》")
_DOUBLED = ("''", "``")

_POSSESSIVE = ("'s", "’s")
_SHORTENED = re.compile(r"['’](?:\d|[sS]\b)")
"""An apostrophe that opens nothing: '90s, 's."""

_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,2}|[^\W\d_]")
"""What stands before the last full stop of U.N., Ph.D., J.-P., or of an initial."""
_ABBREVIATIONS = frozenset(
    "mr mrs ms messrs dr prof st mt gen col maj capt lt sgt cmdr adm sen rep gov pres rev hon jr sr inc corp ltd co bros "
    "jan feb mar apr jun jul aug sep sept oct nov dec vs etc cf".split()
)
_IN_A_SENTENCE = re.compile(r"[,;:]|['’][sS]\b")
_SMALL_LETTER_NEXT = re.compile(r"[\"'”’»)\]}>]*\s+(?=[^\W\d_])(\w)")


def word_extents(text: str) -> list[tuple[int, int]]:
    """Where each word begins and where it has ended; together they are all of the text but its white space.

    Quotes, brackets and the marks , ; : ! ? are words of their own at a word's ends and part of it inside; so is a
    full stop that ends a sentence, but not that of an abbreviation. A possessive 's is a word.
    """
    return [extent for chunk in _CHUNK.finditer(text) for extent in _parts(text, *chunk.span())]


def _parts(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while size := _mark_before(text, start, stop):
        yield start, start + size
        start += size
    after = []
    while size := _mark_after(text, start, stop):
        after.append((stop - size, stop))
        stop -= size
    yield start, stop
    yield from reversed(after)


def _mark_before(text: str, start: int, stop: int) -> int:
    """The length of the mark that a chunk begins with, 0 if there is none before a word."""
    size = 2 if text.startswith(_DOUBLED, start, stop) else 1
    marked = text[start] in _MARKS and not _SHORTENED.match(text, start, stop)
    return size if marked and size < stop - start else 0


def _mark_after(text: str, start: int, stop: int) -> int:
    """The length of the mark, or of the 's, that a chunk ends with; 0 if there is none after a word."""
    doubled, possessive = (text[start:stop].lower().endswith(ends) for ends in (_DOUBLED, _POSSESSIVE))
    size = 2 if doubled or possessive else 1
    last = text[stop - 1]
    marked = possessive or last in _MARKS or (last == "." and _ends_sentence(text, start, stop - 1))
    return size if marked and size < stop - start else 0


def _ends_sentence(text: str, start: int, stop: int) -> bool:
    """Whether the full stop at `stop` ends a sentence: its word is no abbreviation, nor does the sentence go on."""
    word = text[start:stop]
    lonely_small_letter = len(word) == 1 and word.islower()
    if word.lower() in _ABBREVIATIONS or (_DOTTED.fullmatch(word) and not lonely_small_letter):
        return False
    following = _SMALL_LETTER_NEXT.match(text, stop + 1)
    goes_on = following is not None and following[1].islower() and word[:1].isupper()
    return not goes_on and not _IN_A_SENTENCE.match(text, stop + 1)
