"""Locate an answer in its context."""

import re

from lightbert.tasks.example import Answer


def locate_answer(context: str, text: str, start: int) -> Answer | None:
    """The answer as it occurs in the context near `start`, or None if it doesn't.

    As tolerant as BERT's and ELECTRA's data readers: the answer may be anywhere inside the words that overlap the
    given characters; case and white space are ignored. The match nearest to `start` is returned.
    """
    if not text.strip() or not 0 <= start < len(context):
        return None
    if context.startswith(text, start):
        return Answer(text, start)
    first, last = _extend_to_words(context, start, min(start + len(text), len(context)))
    pattern = re.compile(r"\s+".join(re.escape(word) for word in text.split()), re.IGNORECASE)
    found = min(pattern.finditer(context, first, last), key=lambda match: abs(match.start() - start), default=None)
    return None if found is None else Answer(found[0], found.start())


def _extend_to_words(context: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span to whole words."""
    while start > 0 and not context[start - 1].isspace():
        start -= 1
    while end < len(context) and not context[end].isspace():
        end += 1
    return start, end
