"""Error analysis of tagging: rates by type, confused tags, calibration, most confident errors."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lightbert.tasks.example import TaggedSentence
from lightbert.tasks.kinds.classify.findings import confused_pairs, label_rates
from lightbert.tasks.kinds.findings.calibration import calibration_finding
from lightbert.tasks.kinds.findings.finding import Finding, Table
from lightbert.tasks.kinds.findings.rates import Rates, rates_finding
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.kinds.tokens.entities import are_entity_tags, entities

_CONTEXT_WORDS = 8


class Word(NamedTuple):
    """A word in its sentence, with its true tag, predicted tag and probability."""

    sentence: TaggedSentence
    place: int
    tag: str
    predicted: str
    probability: float


def tagging_findings(
    examples: Sequence[TaggedSentence], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """Analyse predicted tags; rates are by entity type if the tags mark entities, else by tag."""
    words = [
        Word(sentence, index, tag, guess["tag"], guess["probability"])
        for sentence, prediction in zip(examples, predictions, strict=True)
        for index, (tag, guess) in enumerate(zip(sentence.tags or (), prediction["tags"], strict=True))
    ]
    gold, predicted = [word.tag for word in words], [word.predicted for word in words]
    if are_entity_tags(labels):
        rates = rates_finding(_entity_rates(examples, predictions), key="types", title="Entities by type")
    else:
        rates = rates_finding(label_rates(gold, predicted, labels), key="tags", title="Tags")
    pairs = Counter((a, b) for a, b in zip(gold, predicted, strict=True) if a != b)
    confused = [{"true": a, "predicted": b, "count": count} for (a, b), count in pairs.most_common()]
    return [
        rates,
        Finding("confusion", confused, (confused_pairs(gold, predicted),)),
        calibration_finding(
            [word.probability for word in words],
            [word.tag == word.predicted for word in words],
            None,
            "Probability of the predicted tag, and whether it is correct",
        ),
        _most_wrong(words, worst),
    ]


def _entity_rates(examples: Sequence[TaggedSentence], predictions: Sequence[Prediction]) -> dict[str, Rates]:
    right, said, true = Counter[str](), Counter[str](), Counter[str]()
    for sentence, prediction in zip(examples, predictions, strict=True):
        expected = set(entities(sentence.tags or ()))
        found = set(entities([word["tag"] for word in prediction["tags"]]))
        for counter, group in ((right, expected & found), (said, found), (true, expected)):
            counter.update(entity.type for entity in group)
    types = sorted(said.keys() | true.keys())
    return {name: Rates.of(right=right[name], said=said[name], true=true[name]) for name in types}


def _most_wrong(words: Sequence[Word], worst: int) -> Finding:
    wrong = sorted((word for word in words if word.tag != word.predicted), key=lambda word: -word.probability)[:worst]
    value: list[dict[str, Any]] = [
        {
            "id": word.sentence.id,
            "word": word.sentence.words[word.place],
            "place": word.place,
            "tag": word.tag,
            "predicted": word.predicted,
            "probability": word.probability,
            "around": " ".join(
                word.sentence.words[max(0, word.place - _CONTEXT_WORDS) : word.place + _CONTEXT_WORDS + 1]
            ),
        }
        for word in wrong
    ]
    keys = ("word", "tag", "predicted", "probability", "around")
    rows = [tuple(each[key] for key in keys) for each in value]
    columns = ("word", "true", "predicted", "probability", "context")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "The most confident wrong tags."),))
