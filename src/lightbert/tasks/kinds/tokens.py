"""Token classification: one tag per word, such as named entities or parts of speech."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import IGNORE_INDEX, Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example, TaggedSentence, TextEncoder
from lightbert.tasks.kinds.classify import confused_pairs, label_counts
from lightbert.tasks.kinds.kind import (
    Finding,
    LabelledKind,
    Outputs,
    Prediction,
    calibration_finding,
    rates_finding,
    softmax,
)


@dataclass(frozen=True, kw_only=True)
class WordFeatures(Features):
    """Windows of sentences, with the position of each word's first piece."""

    first_pieces: NDArray[np.int64]  # [Σw], the index in `tokens` of each word's first piece
    offsets: NDArray[np.int64]  # [Σw, 2], start and end (exclusive) of each word in its text
    words: NDArray[np.int64]  # [examples + 1], where the words of each example begin in `first_pieces`


@dataclass(frozen=True)
class WordPieces:
    """The pieces of a word, at least one, and its offsets in the text."""

    pieces: Sequence[int]
    start: int
    stop: int


def encode_words(
    examples: Sequence[TaggedSentence | Example], encoder: TextEncoder, numbers: Mapping[str, int]
) -> WordFeatures:
    """Encode sentences; the target of a word's first piece is the index of its tag, other pieces are ignored.

    A sentence that is too long becomes several windows (`word_windows`). A single word that is too long is truncated.
    A sentence without words is a row of special tokens.
    """
    room = encoder.length - 2
    rows: list[list[int]] = []
    sources, first_pieces, offsets, counts = [], [], [], []
    length = cut = 0
    for source, words in enumerate(_words(examples, encoder)):
        for window in word_windows([min(len(word.pieces), room) for word in words], room):
            pieces: list[int] = []
            for number in range(window.start, window.stop):
                if window.first <= number < window.last:
                    # + 1 for [CLS].
                    first_pieces.append(length + 1 + len(pieces))
                pieces += words[number].pieces[:room]
            row, _ = encoder.row(pieces)
            rows.append(row)
            sources.append(source)
            length += len(row)
        cut += any(len(word.pieces) > room for word in words)
        offsets += [(word.start, word.stop) for word in words]
        counts.append(len(words))
    targets = _targets(examples, numbers, first_pieces, length)
    lengths = [len(row) for row in rows]
    features = Features.of(rows, lengths, sources, targets, per_token=True, cut=cut)
    return WordFeatures(
        **vars(features),
        first_pieces=np.array(first_pieces, np.int64),
        offsets=np.array(offsets, np.int64).reshape(-1, 2),
        words=np.cumsum([0, *counts], dtype=np.int64),
    )


def text_of(example: TaggedSentence | Example) -> str:
    """The text that offsets refer to: the text itself, or the words joined by single spaces."""
    return example.text if isinstance(example, Example) else " ".join(example.words)


def _words(examples: Sequence[TaggedSentence | Example], encoder: TextEncoder) -> Iterator[list[WordPieces]]:
    """Tokenize each word separately, so that a plain text is encoded like a sentence given as words."""
    sentences = [(text_of(example), _offsets(example)) for example in examples]
    distinct = list(dict.fromkeys(text[start:stop] for text, offsets in sentences for start, stop in offsets))
    ids_of = {word: encoding.ids for word, encoding in zip(distinct, encoder.pieces(distinct), strict=True)}
    for text, offsets in sentences:
        # A word of control characters has no pieces, but still needs a prediction.
        yield [
            WordPieces(ids_of[text[start:stop]] or [_unknown_piece(encoder)], start, stop) for start, stop in offsets
        ]


def _offsets(example: TaggedSentence | Example) -> list[tuple[int, int]]:
    if isinstance(example, TaggedSentence):
        stops = itertools.accumulate(len(word) + 1 for word in example.words)
        return [(stop - len(word) - 1, stop - 1) for word, stop in zip(example.words, stops, strict=True)]
    if example.text_b is not None:
        raise InputError(f"tagging requires a single text, got a pair; remove {example.text_b!r}")
    return word_offsets(example.text)


def _unknown_piece(encoder: TextEncoder) -> int:
    pieces = (encoder.tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
    return next((piece for piece in pieces if piece is not None), encoder.specials.mask)


def _targets(
    examples: Sequence[TaggedSentence | Example], numbers: Mapping[str, int], first_pieces: list[int], length: int
) -> NDArray[np.int64] | None:
    tags: list[str] = []
    for example in examples:
        if isinstance(example, Example) or example.tags is None:
            return None
        if len(example.tags) != len(example.words):
            raise InputError(
                f"there must be one tag per word, got {len(example.tags)} tags for {len(example.words)} words"
            )
        tags += example.tags
    for tag in tags:
        if tag not in numbers:
            raise unknown("tag", tag, numbers)
    targets = np.full(length, IGNORE_INDEX, np.int64)
    targets[first_pieces] = [numbers[tag] for tag in tags]
    return targets if examples else None


_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHUNK = re.compile(rf"—+|-{{2,}}|\.{{3,}}|…|[{_IDEOGRAPHS}]|(?:(?!—|--|\.{{3}}|…)[^\s{_IDEOGRAPHS}])+")
"""Chunks that are split further only at their ends. Long dashes, ellipses and (as in BERT) ideographs are chunks."""

_MARKS = frozenset(",;:!?¡¿()[]{}<>\"'`“”„‘’‚«»‹›、。，；：！？（）「」『』《》")
_DOUBLED = ("''", "``")
_POSSESSIVE = ("'s", "’s")
_ELISION = re.compile(r"['’](?:\d\ds?|s)\b")
"""An apostrophe that isn't an opening quote: '90s, 's."""

_TITLES = "mr|mrs|ms|messrs|dr|prof|gen|col|maj|capt|lt|sgt|adm|sen|rep|gov|pres|rev|hon|st|mt|jr|sr"
_SHORTENED = "inc|corp|ltd|co|bros|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|vs|etc|cf"
_ABBREVIATION = re.compile(rf"(?:[^\W\d_]{{1,2}}\.-?)+[^\W\d_]{{1,2}}|(?i:{_TITLES}|{_SHORTENED})")
"""The part before the last dot of U.N., Ph.D., J.-P., or of a known abbreviation."""
_MAX_ABBREVIATION = 40
"""Characters of an abbreviation; bounds the regular expression search."""
_CONTINUATION = re.compile(r"[,;:]|['’][sS]\b")
_NEXT_WORD = re.compile(r"[\"'”’»)\]}>]*\s+(\w)")


def word_offsets(text: str) -> list[tuple[int, int]]:
    """The start and end of each word; together the words cover all of the text except white space.

    Quotes, brackets and , ; : ! ? are separate words at the ends of a word, and part of it inside. So is a full stop,
    unless it belongs to an abbreviation. A possessive 's is a separate word.
    """
    return [offset for chunk in _CHUNK.finditer(text) for offset in _parts(text, *chunk.span())]


def _parts(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while size := _leading_mark(text, start, stop):
        yield start, start + size
        start += size
    after, letter = [], next((index for index in range(start, stop) if text[index].isalnum()), stop)
    while size := _trailing_mark(text, start, stop, letter):
        after.append((stop - size, stop))
        stop -= size
    yield start, stop
    yield from reversed(after)


def _leading_mark(text: str, start: int, stop: int) -> int:
    """The length of the punctuation mark before a word; 0 if there is no mark or no word after it."""
    if text[start] not in _MARKS or _ELISION.match(text, start, stop):
        return 0
    size = 2 if text.startswith(_DOUBLED, start, stop) else 1
    return size if size < stop - start else 0


def _trailing_mark(text: str, start: int, stop: int, letter: int) -> int:
    """The length of the punctuation mark or 's after a word; 0 if there is no mark or no word before it.

    letter: the position of the first letter or digit.
    """
    last, pair = text[stop - 1], text[max(start, stop - 2) : stop].lower()
    if pair in _DOUBLED or pair in _POSSESSIVE:
        size = 2
    else:
        size = int(last in _MARKS or (last == "." and letter < stop and _is_full_stop(text, start, stop - 1)))
    return size if size < stop - start else 0


def _is_full_stop(text: str, start: int, stop: int) -> bool:
    """Whether the dot at `stop` ends a sentence instead of an abbreviation.

    A capitalised word with a dot is an abbreviation if the next word begins with a lower-case letter.
    """
    initial = stop - start == 1 and text[start].isupper()
    short = stop - start <= _MAX_ABBREVIATION and _ABBREVIATION.fullmatch(text, start, stop)
    if initial or short or _CONTINUATION.match(text, stop + 1):
        return False
    following = _NEXT_WORD.match(text, stop + 1)
    return not (following is not None and following[1].islower() and text[start].isupper())


# A window repeats up to this fraction, 1/4, of the previous one.
_OVERLAP_DIVISOR = 4


class Window(NamedTuple):
    """The words from `start` to `stop` are encoded, those from `first` to `last` predicted; ends are exclusive."""

    start: int
    stop: int
    first: int
    last: int


def word_windows(sizes: Sequence[int], room: int) -> list[Window]:
    """Split a sentence into windows of at most `room` pieces; `sizes` are the pieces per word, at most `room` each.

    Neighbouring windows share up to a quarter of their pieces. Each predicts the half of the shared words nearer to
    its centre, so that every word has context on both sides.
    """
    windows: list[Window] = []
    start = first = 0
    while True:
        stop, used = start, 0
        while stop < len(sizes) and used + sizes[stop] <= room:
            used += sizes[stop]
            stop += 1
        if stop == len(sizes):
            return [*windows, Window(start, stop, first, stop)]
        # Leave room in the next window for its first new word.
        shared = min(room // _OVERLAP_DIVISOR, room - sizes[stop])
        following = stop
        while sizes[following - 1] <= shared:
            following -= 1
            shared -= sizes[following]
        last = (following + stop) // 2
        windows.append(Window(start, stop, first, last))
        start, first = following, last


@dataclass(frozen=True)
class Tokens(LabelledKind[TaggedSentence | Example]):
    """The tag of a word is predicted from its first piece (BERT §5.3).

    Plain texts are split into words by `word_offsets`. Long sentences are read in overlapping windows, so that every
    word has a prediction.
    """

    name: ClassVar[str] = "tokens"
    title: ClassVar[str] = "token classification"
    heads: ClassVar[tuple[str, ...]] = ("tokens",)
    inputs: ClassVar[tuple[type, ...]] = (Example, TaggedSentence)
    requires: ClassVar[str] = "a text or words"
    one_per_text: ClassVar[bool] = False

    @property
    def metric(self) -> str:
        """F1 of the entities if the tags mark entities, else the accuracy of tags."""
        return "f1" if are_entity_tags(self.labels) else "accuracy"

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
        values = softmax(np.concatenate([row for (row,) in outputs])[features.first_pieces])  # [Σw, C]
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
        tags = {word["tag"] for prediction in predictions for word in prediction["tags"]}
        return str(tags.pop()) if len(tags) == 1 else ""

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
    spans, start = [], 0
    before, type_before = "O", ""
    for index, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = _EQUIVALENT.get(letter, letter)
        changes = kind != type_before
        if before != "O" and (before in "ES" or letter in "OBS" or changes):
            spans.append(Entity(type_before, start, index))
        if letter != "O" and (letter in "BS" or before in "OES" or changes):
            start = index
        before, type_before = letter, kind
    return spans


def entity_counts(
    truth: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, tuple[int, int, int]]:
    """True positives, predictions and true occurrences of every entity type; words and type must both match."""
    right, said, true = Counter[str](), Counter[str](), Counter[str]()
    for tags, predicted_tags in zip(truth, predicted, strict=True):
        expected, answers = set(entities(tags)), set(entities(predicted_tags))
        for counter, group in ((right, expected & answers), (said, answers), (true, expected)):
            counter.update(entity.type for entity in group)
    return {name: (right[name], said[name], true[name]) for name in sorted(said.keys() | true.keys())}


def entity_scores(truth: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall over the entities of all sentences."""
    right, said, true = (
        sum(column) for column in zip((0, 0, 0), *entity_counts(truth, predicted).values(), strict=True)
    )
    return {
        "f1": 2 * right / (true + said) if true + said else 0.0,
        "precision": right / said if said else 0.0,
        "recall": right / true if true else 0.0,
    }


_CONTEXT_WORDS = 8


def tagging_findings(
    examples: Sequence[TaggedSentence], predictions: Sequence[Prediction], labels: Sequence[str], worst: int
) -> list[Finding]:
    """Analyse predicted tags; rates are by entity type if the tags mark entities, else by tag."""
    words: list[dict[str, Any]] = [
        {
            "id": sentence.id,
            "word": sentence.words[place],
            "place": place,
            "tag": tag,
            "predicted": word["tag"],
            "probability": word["probability"],
            "around": " ".join(sentence.words[max(0, place - _CONTEXT_WORDS) : place + _CONTEXT_WORDS + 1]),
        }
        for sentence, prediction in zip(examples, predictions, strict=True)
        for place, (tag, word) in enumerate(zip(sentence.tags or (), prediction["tags"], strict=True))
    ]
    true, predicted = [word["tag"] for word in words], [word["predicted"] for word in words]
    known = [sentence.tags or () for sentence in examples]
    said = [[word["tag"] for word in prediction["tags"]] for prediction in predictions]
    if are_entity_tags(labels):
        rates = rates_finding(entity_counts(known, said), key="types", title="Entities by type")
    else:
        rates = rates_finding(label_counts(true, predicted, labels), key="tags", title="Tags")
    pairs = Counter((a, b) for a, b in zip(true, predicted, strict=True) if a != b)
    confused = [{"true": a, "predicted": b, "count": count} for (a, b), count in pairs.most_common()]
    errors = sorted((word for word in words if word["tag"] != word["predicted"]), key=lambda word: -word["probability"])
    columns = {"word": "word", "tag": "true", "predicted": "predicted", "probability": "probability"}
    return [
        rates,
        Finding("confusion", confused, (confused_pairs(true, predicted),)),
        calibration_finding(
            [word["probability"] for word in words],
            [word["tag"] == word["predicted"] for word in words],
            None,
            "Probability of the predicted tag, and whether it is correct",
        ),
        Finding.of_errors(errors[:worst], columns | {"around": "context"}, "The most confident wrong tags."),
    ]
