"""Token classification: one tag per word, such as named entities or parts of speech."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Example, TaggedSentence
from lightbert.tasks.kinds.classify import confused_pairs, label_rates
from lightbert.tasks.kinds.findings import Finding, Rates, Table, calibration_finding, rates_finding
from lightbert.tasks.kinds.kind import LabelledKind, Outputs, Prediction, softmax
from lightbert.tasks.kinds.tokens.words import WordFeatures, encode_words, text_of
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True)
class Tokens(LabelledKind[TaggedSentence | Example]):
    """The tag of a word is predicted from its first piece (BERT §5.3).

    Plain texts are split into words by `word_offsets`. Long sentences are read in overlapping windows, so that every
    word has a prediction.
    """

    name: ClassVar[str] = "tokens"

    @property
    def head(self) -> str:
        """The token classification head."""
        return "tokens"

    def features(self, examples: Sequence[TaggedSentence | Example], encoder: TextEncoder) -> WordFeatures:
        """Encode sentences; targets are set if every sentence has tags."""
        return encode_words(examples, encoder, {tag: number for number, tag in enumerate(self.labels)})

    def predictions(
        self, examples: Sequence[TaggedSentence | Example], features: Features, outputs: Outputs
    ) -> list[Prediction]:
        """The tag of each word, and the entity spans if the tags mark entities.

        `start` and `end` are character offsets; for a sentence given as words, in the words joined by single spaces.
        """
        if not isinstance(features, WordFeatures):
            raise TypeError("features must come from Tokens.features")
        if not examples:
            return []
        values = softmax(np.concatenate([each for (each,) in outputs])[features.first_pieces])  # [Σw, C]
        best, probabilities = values.argmax(axis=-1).tolist(), values.max(axis=-1).tolist()
        offsets, bounds = features.offsets.tolist(), features.words.tolist()
        return [
            self._prediction(
                text_of(example), offsets[a:b], [self.labels[tag] for tag in best[a:b]], probabilities[a:b]
            )
            for example, a, b in zip(examples, bounds, bounds[1:], strict=False)
        ]

    def _prediction(
        self, text: str, offsets: list[list[int]], tags: list[str], probabilities: list[float]
    ) -> Prediction:
        words = [
            {"text": text[start:end], "start": start, "end": end, "tag": tag, "probability": probability}
            for (start, end), tag, probability in zip(offsets, tags, probabilities, strict=True)
        ]
        spans = []
        for entity in entities(tags) if are_entity_tags(self.labels) else []:
            start, end = offsets[entity.start][0], offsets[entity.stop - 1][1]
            spans.append({"type": entity.type, "text": text[start:end], "start": start, "end": end})
        return {"tags": words, "spans": spans}

    def metrics(
        self, examples: Sequence[TaggedSentence | Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Conlleval's F1, precision and recall of spans, if the tags mark entities, and the accuracy of tags."""
        truth = [_tags(example) for example in examples]
        predicted = [[word["tag"] for word in prediction["tags"]] for prediction in predictions]
        pairs = [pair for a, b in zip(truth, predicted, strict=True) for pair in zip(a, b, strict=True)]
        accuracy = sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
        spans = entity_scores(truth, predicted) if are_entity_tags(self.labels) else {}
        return spans | {"accuracy": accuracy}

    def baseline(self, train: Features, examples: Sequence[TaggedSentence | Example]) -> list[Prediction]:
        """The most frequent tag of the training data for every word."""
        assert train.targets is not None
        tag = self.labels[int(np.bincount(train.targets[train.targets >= 0], minlength=len(self.labels)).argmax())]
        return [{"tags": [{"tag": tag}] * len(_tags(example))} for example in examples]

    def only_label(self, predictions: Sequence[Prediction]) -> str:
        """The tag of every word."""
        found = {word["tag"] for prediction in predictions for word in prediction["tags"]}
        return str(found.pop()) if len(found) == 1 else ""

    def findings(
        self, examples: Sequence[TaggedSentence | Example], predictions: Sequence[Prediction], worst: int
    ) -> list[Finding]:
        """Rates by entity type or tag, confused tags, calibration, and the most confident errors."""
        return tagging_findings(
            [example for example in examples if isinstance(example, TaggedSentence)], predictions, self.labels, worst
        )


def _tags(example: TaggedSentence | Example) -> tuple[str, ...]:
    if isinstance(example, Example) or example.tags is None:
        raise InputError(f"metrics require sentences with tags, got none for {text_of(example)[:40]!r}")
    return example.tags


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
