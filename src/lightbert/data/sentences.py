"""Splits prose into sentences, and hashes names for splits and orders that are the same on every machine."""

import hashlib
import re
from collections.abc import Iterator, Mapping

# An end mark, closing quotes or brackets, whitespace; then an optional opening quote or bracket, a capital or a digit.
_END = re.compile(r"[.!?][\"'”’)\]]*\s+(?=[\"'“‘(\[]?[A-Z0-9À-Þ])")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+\Z")

_ENGLISH = """
mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt maj adm gov sen rep pres messrs mme mlle
vs etc al cf ca fig figs eq eqs no nos vol vols pp ed eds ch sec art approx est dept univ assn inc ltd co corp bros
jan feb mar apr jun jul aug sep sept oct nov dec e.g i.e u.s u.k a.m p.m b.c a.d ph.d
"""
_ABBREVIATIONS = frozenset(_ENGLISH.split())


def split_sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph; doubtful boundaries are not split.

    A full stop does not end a sentence after an abbreviation or a single letter, or before a lowercase letter.
    """
    sentences, start = [], 0
    for match in _END.finditer(paragraph):
        if paragraph[match.start()] == "." and _is_abbreviation(paragraph, match.start()):
            continue
        sentences.append(paragraph[start : match.end()].strip())
        start = match.end()
    rest = paragraph[start:].strip()
    return [*sentences, rest] if rest else sentences


def _is_abbreviation(paragraph: str, stop: int) -> bool:
    match = _LAST_WORD.search(paragraph, max(0, stop - 16), stop)
    word = match.group() if match is not None else ""
    return (len(word) == 1 and word.isalpha() and word != "I") or word.lower() in _ABBREVIATIONS


_ROLE = re.compile(r":[\w:+.-]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`_{0,2}")
_LITERAL = re.compile(r"``([^`]*)``|`([^`<]*?)(?:\s*<[^`>]*>)?`_{0,2}")
_EMPHASIS = re.compile(r"\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\n]+)\*(?![\w*])")
_LINK = re.compile(r"\[([^\]\n]+)\]\([^)\s]*\)|<?https?://[^\s>]*>?")
_FIELD = re.compile(r"^(?::\w+[^:]*:|[\w.*, ]+\([^)]*\):|@\w+)\s*")
_BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|#\.)\s+")
_CODE = re.compile(r"^(?:>>>|\.\.\. |In \[\d+\]|\$ |\.\. |```|~~~|[|+#@%}{<=])")
_WORD = re.compile(r"[A-Za-z][a-z]+(?:['’-][a-z]+)*")
_SPACES = re.compile(r"\s+")

_MIN_WORDS = 4
# The minimum share of non-space characters in plain words; code and formulas are well below it.
_MIN_WORD_SHARE = 0.7


def prose(docstring: str) -> list[str]:
    """Return the sentences of a docstring, in order."""
    paragraphs = (_plain(" ".join(lines)) for lines in _paragraphs(docstring.splitlines()))
    return [sentence for text in paragraphs for sentence in split_sentences(text) if _is_prose(sentence)]


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Group lines into paragraphs, split at blank lines, bullets, indentation and section underlines; skip code."""
    paragraph: list[str] = []
    indentation, code_deeper_than = 0, -1
    in_example = False
    for line in lines:
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if not text:
            in_example = False
        if text and code_deeper_than >= 0 and depth <= code_deeper_than:
            code_deeper_than = -1
        is_code = in_example or code_deeper_than >= 0 or _CODE.match(text) is not None
        if not text or is_code or _is_rule(text) or depth != indentation or _BULLET.match(text) or _FIELD.match(text):
            if paragraph:
                yield paragraph
            paragraph = []
        if is_code:
            # The output of an example extends to the next blank line; the body of a directive is indented.
            in_example = in_example or text.startswith(">>>")
            if text.startswith(".. ") and code_deeper_than < 0:
                code_deeper_than = depth
        elif text and not _is_rule(text):
            paragraph.append(_FIELD.sub("", _BULLET.sub("", text)))
        if text.endswith("::") and code_deeper_than < 0:
            code_deeper_than = depth
        indentation = depth
    if paragraph:
        yield paragraph


def _is_rule(text: str) -> bool:
    return len(text) >= 3 and not any(character.isalnum() for character in text)


def _plain(text: str) -> str:
    text = _ROLE.sub(lambda match: match[1].rpartition(".")[2] or match[1], text)
    text = _LITERAL.sub(lambda match: match[1] or match[2] or "", text)
    text = _LINK.sub(lambda match: match[1] or "", text)
    text = _EMPHASIS.sub(lambda match: match[1] or match[2], text)
    return _SPACES.sub(" ", text).replace("::", ":").strip()


def _is_prose(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    characters = len(sentence) - sentence.count(" ")
    return len(words) >= _MIN_WORDS and sum(map(len, words)) >= _MIN_WORD_SHARE * characters


def hashed_order(text: str) -> str:
    """A key that sorts texts in a random order."""
    return hashlib.sha256(text.encode()).hexdigest()


def hashed_part(name: str, shares: Mapping[str, int]) -> str:
    """The part that a name belongs to; each part gets its share of all names."""
    at, end = int(hashed_order(name)[:8], 16) / 2**32 * sum(shares.values()), 0
    for part, share in shares.items():
        end += share
        if at < end:
            return part
    raise AssertionError(at)
