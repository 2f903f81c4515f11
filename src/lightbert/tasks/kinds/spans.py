"""Extractive question answering: the answer is a span of a context, or there is none."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Answer, Question, TextEncoder
from lightbert.tasks.kinds.kind import Finding, Kind, Outputs, Prediction, Table, calibration_finding
from lightbert.tasks.metrics import answer_exact, answer_f1, best_threshold, normalize_answer, score_1_1, score_2_0


@dataclass(frozen=True)
class Pieces:
    """The concatenated tokens of several texts, with character offsets."""

    ids: NDArray[np.int32]  # [Σp]
    offsets: NDArray[np.int32]  # [Σp, 2] first character, end (exclusive)
    starts: NDArray[np.int64]  # [texts + 1]

    @classmethod
    def of(cls, texts: Sequence[str], encoder: TextEncoder) -> "Pieces":
        """Tokenize texts."""
        ids, offsets, lengths = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)], [0]
        for at in range(0, len(texts), _CHUNK):
            for encoding in encoder.pieces(texts[at : at + _CHUNK]):
                ids.append(np.array(encoding.ids, dtype=np.int32))
                offsets.append(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2))
                lengths.append(len(ids[-1]))
        return cls(np.concatenate(ids), np.concatenate(offsets), np.cumsum(lengths, dtype=np.int64))

    def __getitem__(self, text: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The ids and the offsets of one text."""
        part = slice(self.starts[text], self.starts[text + 1])
        return self.ids[part], self.offsets[part]


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Windows in the order of their questions, with the mapping from tokens to characters of the context."""

    firsts: NDArray[np.int64]  # [n], the index in the context of each window's first token
    contexts: NDArray[np.int64]  # [examples], the index of the context in `pieces`
    pieces: Pieces

    def windows(self, example: int) -> range:
        """The rows of one example."""
        first, after = np.searchsorted(self.sources, [example, example + 1]).tolist()
        return range(first, after)

    def sizes(self, rows: range) -> NDArray[np.int64]:
        """The number of context tokens in each row: all but the question, [CLS] and the two [SEP]."""
        part = slice(rows.start, rows.stop)
        return self.lengths[part] - self.seconds[part] - 1


def encode(questions: Sequence[Question], encoder: TextEncoder, *, stride: int, max_query: int) -> SpanFeatures:
    """Encode questions; each context is tokenized once, however many questions it has.

    Targets are set if all answers are known: start and end of the first answer within the row, and whether the question
    is unanswerable. Start and end are 0 if the window doesn't contain the whole answer.
    An empty context has one window.
    """
    if encoder.length < max_query + 4:
        raise InputError(
            f"length must be >= answers.max_query + 4 = {max_query + 4} to leave room for a context, got "
            f"{encoder.length}; raise length, or fine-tune with a lower answers.max_query"
        )
    numbers: dict[str, int] = {}
    contexts = np.array([numbers.setdefault(question.context, len(numbers)) for question in questions], dtype=np.int64)
    pieces = Pieces.of(list(numbers), encoder)
    queries = Pieces.of([question.question for question in questions], encoder)

    sizes = np.minimum(np.diff(queries.starts), max_query)
    counts = np.diff(pieces.starts)[contexts]
    layout = np.array(
        [
            (source, first, size)
            for source, (query, count) in enumerate(zip(sizes.tolist(), counts.tolist(), strict=True))
            for first, size in split_windows(count, encoder.length - query - 3, stride)
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    sources, firsts, widths = layout.T.copy()
    seconds = sizes[sources] + 2
    starts = np.concatenate([[0], np.cumsum(seconds + widths + 1)])

    tokens = np.full(starts[-1], encoder.specials.sep, dtype=np.int32)
    tokens[starts[:-1]] = encoder.specials.cls
    for row, (source, first, width) in enumerate(layout.tolist()):
        begin, second = starts[row], starts[row] + seconds[row]
        tokens[begin + 1 : second - 1] = queries[source][0][: sizes[source]]
        tokens[second : second + width] = pieces[contexts[source]][0][first : first + width]

    known = all(question.answers is not None for question in questions)
    pairs = zip(questions, contexts, strict=True)
    spans = [_span(question, pieces[context][1]) for question, context in pairs if known]
    return SpanFeatures(
        tokens=tokens,
        starts=starts,
        seconds=seconds,
        sources=sources,
        targets=_targets(np.array(spans).reshape(-1, 3)[sources], firsts, widths, seconds) if known else None,
        cut=int((np.diff(queries.starts) > max_query).sum()),
        firsts=firsts,
        contexts=contexts,
        pieces=pieces,
    )


def split_windows(count: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yield the first token and the size of each window over `count` tokens."""
    first = 0
    while True:
        size = min(count - first, room)
        yield first, size
        if first + size == count:
            return
        first += min(size, stride)


def _span(question: Question, offsets: NDArray[np.int32]) -> tuple[int, int, int]:
    """First and last token of the first answer, (-1, -1) if no token overlaps it, and 1 if there is no answer."""
    if not question.answers:
        return -1, -1, 1
    text, start = question.answers[0].text, question.answers[0].start
    answer = locate_answer(question.context, text, start)
    if answer is None:
        raise InputError(
            f"the answer {text!r} of the question {question.id or question.question!r} must occur in its context at "
            f"character {start}; correct it or remove the question"
        )
    return *token_span(offsets, answer.start, answer.start + len(answer.text)), 0


def _targets(
    spans: NDArray[np.int64], firsts: NDArray[np.int64], widths: NDArray[np.int64], seconds: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Convert token spans of the context to positions in each row; (0, 0) if the span isn't inside the window."""
    start, end, impossible = spans.T
    inside = (start >= firsts) & (end < firsts + widths)
    shift = seconds - firsts
    return np.stack([np.where(inside, start + shift, 0), np.where(inside, end + shift, 0), impossible], axis=1)


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
    match = min(pattern.finditer(context, first, last), key=lambda match: abs(match.start() - start), default=None)
    return None if match is None else Answer(match[0], match.start())


def _extend_to_words(context: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span to whole words."""
    while start > 0 and not context[start - 1].isspace():
        start -= 1
    while end < len(context) and not context[end].isspace():
        end += 1
    return start, end


# Encodings are many times larger than the ids and offsets that are kept, so tokenize in chunks.
_CHUNK = 1024


def token_span(offsets: NDArray[np.int32], start: int, end: int) -> tuple[int, int]:
    """The first and last token that overlap the characters; (-1, -1) if there is none."""
    overlapping = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(overlapping[0]), int(overlapping[-1])) if len(overlapping) else (-1, -1)


def char_span(context: str, offsets: NDArray[np.int32], first: int, last: int) -> tuple[int, int]:
    """The characters of the tokens from `first` to `last`, without surrounding white space.

    Accents and control characters that the tokenizer dropped after the last token are included.
    """
    start, end = int(offsets[first, 0]), int(offsets[last, 1])
    following = int(offsets[last + 1, 0]) if last + 1 < len(offsets) else len(context)
    while end < following and unicodedata.category(context[end])[0] in "MC" and not context[end].isspace():
        end += 1
    # The offsets of a SentencePiece token may include the space before its word.
    text = context[start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


_QUESTION_WORD = re.compile(r"\b(how (?:many|much|long|old|far)|how|what|which|whom?|whose|when|where|why)\b")


class ScoredAnswer(NamedTuple):
    """A question, its prediction, and its scores by SQuAD's rules."""

    question: Question
    prediction: Prediction
    exact: bool
    f1: float

    @classmethod
    def of(cls, question: Question, prediction: Prediction) -> "ScoredAnswer":
        """Score an answer against all accepted answers; the best match counts."""
        accepted = [answer.text for answer in question.answers or () if normalize_answer(answer.text)] or [""]
        predicted = prediction["answer"]
        exact = any(answer_exact(predicted, answer) for answer in accepted)
        return cls(question, prediction, exact, max(answer_f1(predicted, answer, both_empty=1) for answer in accepted))


def answer_findings(examples: Sequence[Question], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
    """Analyse predicted answers."""
    scored = [ScoredAnswer.of(question, prediction) for question, prediction in zip(examples, predictions, strict=True)]
    return [
        _breakdown("answerable", "By answerability", scored, lambda question: "yes" if question.answers else "no"),
        _breakdown("question_words", "By question word", scored, question_word),
        calibration_finding(
            [answer.prediction["probability"] for answer in scored],
            [answer.exact for answer in scored],
            None,
            "Probability of the answer among the candidates, and whether it is an exact match",
        ),
        _most_wrong(scored, worst),
    ]


def question_word(question: Question) -> str:
    """The first question word of a question; "other" if there is none."""
    match = _QUESTION_WORD.search(question.question.lower())
    return match[1] if match else "other"


def _breakdown(key: str, title: str, scored: Sequence[ScoredAnswer], group: Callable[[Question], str]) -> Finding:
    groups: dict[str, list[ScoredAnswer]] = {}
    for answer in scored:
        groups.setdefault(group(answer.question), []).append(answer)
    value = {
        name: {
            "count": len(answers),
            "exact_match": sum(answer.exact for answer in answers) / len(answers),
            "f1": sum(answer.f1 for answer in answers) / len(answers),
            "answered": sum(bool(answer.prediction["answer"]) for answer in answers),
        }
        for name, answers in sorted(groups.items(), key=lambda item: -len(item[1]))
    }
    rows = [(name, row["count"], row["answered"], row["exact_match"], row["f1"]) for name, row in value.items()]
    columns = (key.replace("_", " ").removesuffix("s"), "count", "answered", "exact match", "F1")
    return Finding(key, value, (Table(title, columns, rows),))


def _most_wrong(scored: Sequence[ScoredAnswer], worst: int) -> Finding:
    wrong = [answer for answer in scored if not answer.exact]
    value: list[dict[str, Any]] = [
        {
            "id": question.id,
            "question": question.question,
            "context": question.context,
            "answers": [answer.text for answer in question.answers or ()],
            "predicted": prediction["answer"],
            "probability": prediction["probability"],
            "f1": f1,
        }
        for question, prediction, _, f1 in sorted(wrong, key=lambda row: (row.f1, -row.prediction["probability"]))
    ][:worst]
    rows = [
        (
            record["question"],
            " / ".join(dict.fromkeys(record["answers"])) or "(no answer)",
            record["predicted"] or "(no answer)",
            record["probability"],
            record["f1"],
        )
        for record in value
    ]
    columns = ("question", "true", "predicted", "probability", "F1")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "Lowest F1, most confident first."),))


RELEASED_THRESHOLDS = {"span": 0.0, "beam": -2.75}
"""Head -> the null threshold of the released code: MobileBERT's for "span", ELECTRA's for "beam"."""

# The null score if there are no candidates; finite, because JSON has no infinity.
_NO_CANDIDATES = 1e9


@dataclass(frozen=True)
class Spans(Kind[Question]):
    """BERT's two logits per token (head "span"), or ELECTRA's joint prediction with answerability (head "beam").

    The null score, high for unanswerable questions, is the minimum over the windows: with "span" the score of [CLS]
    minus that of the best span, with "beam" the answerability logit. The answer is empty if the null score is above
    `null_threshold`; with None it never is (SQuAD 1.1). `tune` chooses the threshold with the best F1.
    """

    name: ClassVar[str] = "spans"
    title: ClassVar[str] = "question answering"
    heads: ClassVar[tuple[str, ...]] = ("beam", "span")
    inputs: ClassVar[tuple[type, ...]] = (Question,)
    requires: ClassVar[str] = "a question and a context"
    one_per_text: ClassVar[bool] = False

    head: str = "span"
    stride: int = 128
    max_query: int = 64
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.head not in self.heads:
            raise unknown("head for questions", self.head, ("span", "beam"))
        for field in ("stride", "max_query", "max_answer", "n_best"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be >= 1, got {getattr(self, field)}")

    @classmethod
    def for_head(cls, head: str, labels: Callable[[], tuple[str, ...]], like: Kind[Any] | None) -> "Spans":
        """The settings of the task to evaluate, else the defaults."""
        return replace(like, head=head) if isinstance(like, Spans) else cls(head)

    def with_settings(self, **settings: Any) -> "Spans":
        """Change settings; a null threshold, if set, is reset to the released one of the new head."""
        changed = replace(self, **settings)
        always = self.null_threshold is None
        return changed if always else replace(changed, null_threshold=RELEASED_THRESHOLDS[changed.head])

    def features(self, examples: Sequence[Question], encoder: TextEncoder) -> SpanFeatures:
        """Encode questions, one row per window; the targets are start, end and is_impossible."""
        return encode(examples, encoder, stride=self.stride, max_query=self.max_query)

    def most_tokens(self, length: int) -> int:
        """The tokens of a question; contexts are not truncated."""
        return self.max_query

    def predictions(self, examples: Sequence[Question], features: Features, outputs: Outputs) -> list[Prediction]:
        """The answer with its character offsets and probability, the null score, and the n best candidates."""
        if not isinstance(features, SpanFeatures):
            raise TypeError("features must come from Spans.features")
        return [self._prediction(question, number, features, outputs) for number, question in enumerate(examples)]

    def metrics(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        """SQuAD's F1 and exact match, by the rules of 2.0 if questions may be unanswerable."""
        # Indices as keys, because ids may be missing or not unique.
        truths = [
            (str(number), [answer.text for answer in question.answers or ()])
            for number, question in enumerate(examples)
        ]
        answers = {str(number): prediction["answer"] for number, prediction in enumerate(predictions)}
        version_2 = self.null_threshold is not None or any(not texts for _, texts in truths)
        scores = score_2_0(truths, answers) if version_2 else score_1_1(truths, answers)
        shares = {name: value / 100 for name, value in scores.items() if not name.endswith("total")}
        return {"f1": shares.pop("f1"), **shares}

    def metric_names(self, train: Features, examples: Sequence[Question]) -> tuple[str, ...]:
        """The metrics of these questions, found with empty answers."""
        return tuple(self.metrics(examples, [{"answer": ""}] * len(examples)))

    def findings(self, examples: Sequence[Question], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Scores by answerability and by question word, calibration, and the worst answers."""
        return answer_findings(examples, predictions, worst)

    def tune(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> "Spans":
        """Choose the null threshold with the best F1 if some questions are unanswerable."""
        if all(question.answers for question in examples):
            return self
        return replace(self, null_threshold=best_threshold(examples, predictions))

    def _prediction(self, question: Question, number: int, features: SpanFeatures, outputs: Outputs) -> Prediction:
        rows = features.windows(number)
        firsts, sizes = features.firsts[rows.start : rows.stop], features.sizes(rows)
        owner = owning_windows(firsts, sizes)
        candidates, nulls = [], []
        for window, row in enumerate(rows):
            first, size, second = int(firsts[window]), int(sizes[window]), int(features.seconds[row])
            own = owner[first : first + size] == window
            if self.head == "span":
                start, end = outputs[row]
                part = slice(second, second + size)
                # More than n_best, because candidates with the same text are merged.
                spans = search_spans(start[part], end[part], own, self.max_answer, 5 * self.n_best)
                nulls.append(float(start[0]) + float(end[0]))
            else:
                start, end, score, impossible = outputs[row]
                spans = filter_spans(start - second, end - second, score, own, self.max_answer)
                nulls.append(float(impossible))
            candidates.append((spans[0] + first, spans[1] + first, spans[2]))
        starts, ends, scores = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
        offsets = features.pieces[features.contexts[number]][1]
        best = best_spans((starts, ends, scores), question.context, offsets, self.n_best)
        return self._make_prediction(question, best, min(nulls))

    def _make_prediction(self, question: Question, best: "list[CharSpan]", null: float) -> Prediction:
        null_score = _NO_CANDIDATES if not best else null - best[0].score if self.head == "span" else null
        weights = [math.exp(span.score - best[0].score) for span in best]
        null_probability = self._null_probability(null_score, sum(weights))
        n_best = [
            {
                "answer": question.context[span.start : span.end],
                "start": span.start,
                "end": span.end,
                "score": span.score,
                "probability": (1 - null_probability) * weight / sum(weights),
            }
            for span, weight in zip(best, weights, strict=True)
        ]
        empty: Prediction = {"answer": "", "start": None, "end": None, "probability": null_probability}
        is_null = self.null_threshold is not None and null_score > self.null_threshold
        chosen = empty if is_null or not n_best else {name: n_best[0][name] for name in empty}
        return {**chosen, "null_score": null_score, "n_best": n_best}

    def _null_probability(self, null_score: float, weights: float) -> float:
        """With "span" the null answer is one more candidate of the softmax, with "beam" a separate sigmoid."""
        if not weights:
            return 1.0
        if self.null_threshold is None:
            return 0.0
        odds = null_score - (math.log(weights) if self.head == "span" else 0.0)
        return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


Floats = NDArray[np.floating]
Candidates = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""First token, last token and score of each candidate."""


class CharSpan(NamedTuple):
    """A span of a context in characters, with its score."""

    start: int
    end: int
    score: float


def owning_windows(firsts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The window that decides about each token of a context: the one with the most context around it (BERT).

    That is the largest minimum of left and right context; ties go to the longer, then to the earlier window.
    """
    count = int((firsts + sizes).max())
    best, owner = np.full(count, -np.inf), np.zeros(count, dtype=np.int64)
    for index, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True)):
        within = slice(first, first + size)
        left = np.arange(size)
        around = np.minimum(left, left[::-1]) + 0.01 * size
        better = around > best[within]
        best[within][better], owner[within][better] = around[better], index
    return owner


def search_spans(start: Floats, end: Floats, own: NDArray[np.bool_], max_answer: int, limit: int) -> Candidates:
    """The `limit` best spans of at most `max_answer` tokens that start at a token the window owns.

    Deviation: the released code pairs the 20 best starts with the 20 best ends; here all pairs are compared.
    """
    if not len(start):
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0)
    width = min(max_answer, len(end))
    ends = np.concatenate([end.astype(np.float64), np.full(width - 1, -np.inf)])
    sums = (np.where(own, start.astype(np.float64), -np.inf)[:, None] + sliding_window_view(ends, width)).ravel()
    top = np.argpartition(sums, -limit)[-limit:] if len(sums) > limit else np.arange(len(sums))
    top = top[sums[top] > -np.inf]
    first, length = np.divmod(top, width)
    return first, first + length, sums[top]


def filter_spans(
    start: NDArray[np.integer], end: NDArray[np.integer], score: Floats, own: NDArray[np.bool_], max_answer: int
) -> Candidates:
    """The valid candidates of a beam search: start <= end, inside the window and owned by it, not too long."""
    inside = (start >= 0) & (start < len(own)) & (end < len(own)) & (end >= start) & (end - start < max_answer)
    first, last = start[inside].astype(np.int64), end[inside].astype(np.int64)
    owned = own[first]
    return first[owned], last[owned], score[inside][owned].astype(np.float64)


def best_spans(candidates: Candidates, context: str, offsets: NDArray[np.int32], n_best: int) -> list[CharSpan]:
    """The best candidates in characters; each text occurs once, with its highest score."""
    first, last, score = candidates
    spans: dict[str, CharSpan] = {}
    for index in np.lexsort((last, first, -score)):
        start, end = char_span(context, offsets, int(first[index]), int(last[index]))
        if start < end:
            spans.setdefault(context[start:end], CharSpan(start, end, float(score[index])))
        if len(spans) == n_best:
            break
    return list(spans.values())
