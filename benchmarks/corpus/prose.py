"""Decides which paragraphs and documents are English prose, and normalizes them."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

Document = list[str]  # paragraphs, one line each

WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")
_FREQUENT = frozenset(
    re.findall(r"\w+", "the of and to a in that is was it for with as his on be he i by at not which this you from")
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u00ad\u200b-\u200f\u2028-\u202e\ufeff]")
_BEFORE_STOP = re.compile(r" ([,.;:!?)\]])")
_HEADING_WORDS = 8


def normalize(paragraph: str) -> str:
    """Return one line in NFC without control characters, repeated spaces and spaces before punctuation."""
    paragraph = unicodedata.normalize("NFC", paragraph)
    if not paragraph.isprintable():
        paragraph = _CONTROL.sub(" ", paragraph)
    return _BEFORE_STOP.sub(r"\1", " ".join(paragraph.split()))


def is_prose(line: str) -> bool:
    """Whether a line has mostly letters and words of ordinary length: no table rows, formulas or rows of dots."""
    letters = sum(map(str.isalpha, line))
    return letters >= 3 and letters >= 0.65 * len(line.replace(" ", "")) and len(line) < 14 * (line.count(" ") + 1)


def is_english(text: str) -> bool:
    """Whether a text has at least 40 words, of which at least 14 % are among the 25 most frequent in English."""
    words = [word.lower() for word in WORD.findall(text[:16000])]
    return len(words) >= 40 and sum(word in _FREQUENT for word in words) >= 0.14 * len(words)


def is_readable(line: str, vocabulary: frozenset[str]) -> bool:
    """Whether at least 85 % of the lowercase words are known; scans with many errors are not."""
    words = [word for word in WORD.findall(line) if word.islower()]
    known = sum(word in vocabulary or word.rstrip("s") in vocabulary for word in words)
    return len(words) < 8 or known >= 0.85 * len(words)


def clean(documents: Iterable[Iterable[str]], vocabulary: frozenset[str] = frozenset()) -> Iterator[Document]:
    """Yield the English documents with the paragraphs that are prose; with a vocabulary, readable ones."""
    for paragraphs in documents:
        lines = [line for line in map(normalize, paragraphs) if line and is_prose(line)]
        if vocabulary:
            lines = [line for line in lines if is_readable(line, vocabulary)]
        while lines and len(lines[-1].split()) < _HEADING_WORDS:  # a heading without a text
            lines.pop()
        if is_english(" ".join(lines)):
            yield lines
