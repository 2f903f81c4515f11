"""Extracts the prose sentences of a docstring and drops markup, code, tables and signatures."""

import re
from collections.abc import Iterator

from lightbert.data.text.sentences import split_sentences

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
