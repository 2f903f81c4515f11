"""Entities from tags such as B-PER and I-PER, and their precision, recall and F1.

Tags are read leniently, like conlleval and seqeval's default mode: an entity begins at B- or S-, and also at I- or E-
after O, E-, S- or another type. So IOB1, IOB2 and IOBES are read in the same way, and an I- without a B- before it
counts. BILOU's L- and U- are read as E- and S-.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_TAG = re.compile(r"O|[BIESLU](-.+)?", re.DOTALL)
_EQUIVALENT = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    """An entity of the words from `start` to `stop` (exclusive)."""

    type: str
    start: int
    stop: int


def are_entity_tags(tags: Iterable[str]) -> bool:
    """Whether tags follow an entity scheme such as IOB2, unlike part-of-speech tags."""
    tags = list(tags)
    return all(_TAG.fullmatch(tag) for tag in tags) and any(tag[0] in "BI" for tag in tags)


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence. A bare B or I has the type ""."""
    found, start = [], 0
    before, type_before = "O", ""
    for index, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = _EQUIVALENT.get(letter, letter)
        changes = kind != type_before
        if before != "O" and (before in "ES" or letter in "OBS" or changes):
            found.append(Entity(type_before, start, index))
        if letter != "O" and (letter in "BS" or before in "OES" or changes):
            start = index
        before, type_before = letter, kind
    return found


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall over the entities of all sentences; words and type must both match."""
    correct = true_count = predicted_count = 0
    for tags, predicted_tags in zip(truth, predicted, strict=True):
        true, found = set(entities(tags)), set(entities(predicted_tags))
        correct += len(true & found)
        true_count += len(true)
        predicted_count += len(found)
    return {
        "f1": 2 * correct / (true_count + predicted_count) if true_count + predicted_count else 0.0,
        "precision": correct / predicted_count if predicted_count else 0.0,
        "recall": correct / true_count if true_count else 0.0,
    }
