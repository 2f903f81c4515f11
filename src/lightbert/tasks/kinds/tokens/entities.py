"""Stretches of words that tags such as B-PER and I-PER mark, and how many of them were found.

Tags are read as conlleval and seqeval's default mode read them, which makes sense of every sequence: a stretch begins
at B- or S-, and also at I- or E- after O, after E- or S-, or after another type. So IOB1, IOB2 and IOBES need not be
told apart, and an I- that follows nothing counts. BILOU's L- and U- are taken for E- and S-.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_TAG = re.compile(r"O|[BIESLU](-.+)?", re.DOTALL)
_SAME = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    """The words from `start` up to, not including, `stop`."""

    type: str
    start: int
    stop: int


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether tags are of the kind that marks stretches, rather than, say, parts of speech."""
    tags = list(tags)
    return all(_TAG.fullmatch(tag) for tag in tags) and any(tag[0] in "BI" for tag in tags)


def entities(tags: Sequence[str]) -> list[Entity]:
    """Find the stretches in the tags of one sentence. A tag without a type, a bare B or I, has the type ""."""
    found, start = [], 0
    before, type_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = _SAME.get(letter, letter)
        changes = kind != type_before
        if before != "O" and (before in "ES" or letter in "OBS" or changes):
            found.append(Entity(type_before, start, place))
        if letter != "O" and (letter in "BS" or before in "OES" or changes):
            start = place
        before, type_before = letter, kind
    return found


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall over the entities of all sentences; right is one with the same words and type."""
    right = expected = given = 0
    for tags, guesses in zip(truth, predicted, strict=True):
        wanted, found = set(entities(tags)), set(entities(guesses))
        right += len(wanted & found)
        expected += len(wanted)
        given += len(found)
    return {
        "f1": 2 * right / (expected + given) if expected + given else 0.0,
        "precision": right / given if given else 0.0,
        "recall": right / expected if expected else 0.0,
    }
