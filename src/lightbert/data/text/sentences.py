"""Splits paragraphs of English prose into sentences."""

import re

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
