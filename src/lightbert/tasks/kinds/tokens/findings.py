"""What there is to see in tags: each type's own rates, which tag was taken for which, and the words that went wrong."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lightbert.tasks.example import Tagged
from lightbert.tasks.kinds.classify.findings import confused_pairs, label_rates
from lightbert.tasks.kinds.findings.calibration import calibration_finding
from lightbert.tasks.kinds.findings.finding import Finding, Table
from lightbert.tasks.kinds.findings.rates import Rates, rates_finding
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.kinds.tokens.entities import entities, mark_entities

_AROUND = 8


class Word(NamedTuple):
    """One word's tag, what was said of it, and where it stands."""

    sentence: Tagged
    place: int
    tag: str
    said: str
    probability: float


def find_in_tags(
    examples: Sequence[Tagged], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """The findings of tagging; types are those of entities where the tags mark any, else the tags themselves."""
    words = [
        Word(sentence, place, tag, said["tag"], said["probability"])
        for sentence, prediction in zip(examples, predictions, strict=True)
        for place, (tag, said) in enumerate(zip(sentence.tags or (), prediction["tags"], strict=True))
    ]
    gold, said = [word.tag for word in words], [word.said for word in words]
    if mark_entities(labels):
        rates = rates_finding(_entity_rates(examples, predictions), key="types", title="Entities by type")
    else:
        rates = rates_finding(label_rates(gold, said, labels), key="tags", title="Tags")
    pairs = Counter((a, b) for a, b in zip(gold, said, strict=True) if a != b)
    confused = [{"true": a, "predicted": b, "count": count} for (a, b), count in pairs.most_common()]
    return [
        rates,
        Finding("confusion", confused, (confused_pairs(gold, said),)),
        calibration_finding(
            [word.probability for word in words],
            [word.tag == word.said for word in words],
            None,
            "The probability of a word's tag, and whether it is right",
        ),
        _most_wrong(words, worst),
    ]


def _entity_rates(examples: Sequence[Tagged], predictions: Sequence[Prediction]) -> dict[str, Rates]:
    right, said, true = Counter[str](), Counter[str](), Counter[str]()
    for sentence, prediction in zip(examples, predictions, strict=True):
        wanted = set(entities(sentence.tags or ()))
        found = set(entities([word["tag"] for word in prediction["tags"]]))
        for counter, group in ((right, wanted & found), (said, found), (true, wanted)):
            counter.update(entity.type for entity in group)
    types = sorted(said.keys() | true.keys())
    return {name: Rates.of(right=right[name], said=said[name], true=true[name]) for name in types}


def _most_wrong(words: Sequence[Word], worst: int) -> Finding:
    wrong = sorted((word for word in words if word.tag != word.said), key=lambda word: -word.probability)[:worst]
    value: list[dict[str, Any]] = [
        {
            "id": word.sentence.id,
            "word": word.sentence.words[word.place],
            "place": word.place,
            "tag": word.tag,
            "predicted": word.said,
            "probability": word.probability,
            "around": " ".join(word.sentence.words[max(0, word.place - _AROUND) : word.place + _AROUND + 1]),
        }
        for word in wrong
    ]
    keys = ("word", "tag", "predicted", "probability", "around")
    rows = [tuple(each[key] for key in keys) for each in value]
    columns = ("word", "true", "predicted", "probability", "around it")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "The surest of the wrong tags."),))
