"""Where an answer stands in its context."""

import re

from lightbert.tasks.example import Answer


def located(context: str, text: str, start: int) -> Answer | None:
    """The answer as its context has it, or None when it is not there.

    The tolerance is that of BERT's and ELECTRA's readers: the answer may stand anywhere within the words that the
    characters from `start` on touch, and case and the kind of white space don't matter. Of several places the nearest
    to `start` is taken.
    """
    if not text.strip() or not 0 <= start < len(context):
        return None
    if context.startswith(text, start):
        return Answer(text, start)
    first, last = _words(context, start, min(start + len(text), len(context)))
    pattern = re.compile(r"\s+".join(re.escape(word) for word in text.split()), re.IGNORECASE)
    found = min(pattern.finditer(context, first, last), key=lambda match: abs(match.start() - start), default=None)
    return None if found is None else Answer(found[0], found.start())


def _words(context: str, start: int, end: int) -> tuple[int, int]:
    """Widen a stretch to whole words."""
    while start > 0 and not context[start - 1].isspace():
        start -= 1
    while end < len(context) and not context[end].isspace():
        end += 1
    return start, end
