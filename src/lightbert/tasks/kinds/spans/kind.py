"""Extractive question answering: the answer is a span of a context, or there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.findings import Finding
from lightbert.tasks.kinds.kind import Kind, Outputs, Prediction
from lightbert.tasks.kinds.spans.findings import answer_findings
from lightbert.tasks.kinds.spans.scores import best_threshold, score_1_1, score_2_0
from lightbert.tasks.kinds.spans.windows import SpanFeatures, char_span, encode
from lightbert.tasks.texts import TextEncoder

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

    head: str = "span"
    stride: int = 128
    max_query: int = 64
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.head not in ("span", "beam"):
            raise unknown("head for questions", self.head, ("span", "beam"))
        for field in ("stride", "max_query", "max_answer", "n_best"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be >= 1, got {getattr(self, field)}")

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
        return [self._prediction(each, number, features, outputs) for number, each in enumerate(examples)]

    def metrics(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        """SQuAD's F1 and exact match, by the rules of 2.0 if questions may be unanswerable."""
        # Indices as keys, because ids may be missing or not unique.
        truths = [(str(number), [answer.text for answer in each.answers or ()]) for number, each in enumerate(examples)]
        answers = {str(number): each["answer"] for number, each in enumerate(predictions)}
        version_2 = self.null_threshold is not None or any(not texts for _, texts in truths)
        found = score_2_0(truths, answers) if version_2 else score_1_1(truths, answers)
        shares = {name: value / 100 for name, value in found.items() if not name.endswith("total")}
        return {"f1": shares.pop("f1"), **shares}

    def metric_names(self, train: Features, examples: Sequence[Question]) -> tuple[str, ...]:
        """The metrics of these questions, found with empty answers."""
        return tuple(self.metrics(examples, [{"answer": ""}] * len(examples)))

    def findings(self, examples: Sequence[Question], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Scores by answerability and by question word, calibration, and the worst answers."""
        return answer_findings(examples, predictions, worst)

    def with_best_threshold(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> "Spans":
        """A copy with the threshold that maximizes the F1 of these predictions."""
        return replace(self, null_threshold=best_threshold(examples, predictions))

    def tune(self, examples: Sequence[Question], predictions: Sequence[Prediction]) -> "Spans":
        """Choose the null threshold if some questions are unanswerable."""
        unanswerable = any(not each.answers for each in examples)
        return self.with_best_threshold(examples, predictions) if unanswerable else self

    def _prediction(self, question: Question, number: int, features: SpanFeatures, outputs: Outputs) -> Prediction:
        rows = features.windows(number)
        firsts, sizes = features.firsts[rows.start : rows.stop], features.sizes(rows)
        owner = owning_windows(firsts, sizes)
        found, nulls = [], []
        for window, row in enumerate(rows):
            first, size, second = int(firsts[window]), int(sizes[window]), int(features.seconds[row])
            own = owner[first : first + size] == window
            if self.head == "span":
                start, end = outputs[row]
                part = slice(second, second + size)
                spans = search_spans(start[part], end[part], own, self.max_answer, self._candidates_per_window)
                nulls.append(float(start[0]) + float(end[0]))
            else:
                start, end, score, impossible = outputs[row]
                spans = filter_spans(start - second, end - second, score, own, self.max_answer)
                nulls.append(float(impossible))
            found.append((spans[0] + first, spans[1] + first, spans[2]))
        starts, ends, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        offsets = features.pieces[features.contexts[number]][1]
        best = best_spans((starts, ends, scores), question.context, offsets, self.n_best)
        return self._make_prediction(question, best, min(nulls))

    @property
    def _candidates_per_window(self) -> int:
        """More than n_best, because candidates with the same text are merged."""
        return 5 * self.n_best

    def _make_prediction(self, question: Question, best: "list[CharSpan]", null: float) -> Prediction:
        if not best:
            null_score = _NO_CANDIDATES
        elif self.head == "span":
            null_score = null - best[0].score
        else:
            null_score = null
        weights = [math.exp(each.score - best[0].score) for each in best]
        null_probability = self._null_probability(null_score, sum(weights))
        n_best = [
            {
                "answer": question.context[each.start : each.end],
                "start": each.start,
                "end": each.end,
                "score": each.score,
                "probability": (1 - null_probability) * weight / sum(weights),
            }
            for each, weight in zip(best, weights, strict=True)
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
    found: dict[str, CharSpan] = {}
    for index in np.lexsort((last, first, -score)):
        start, end = char_span(context, offsets, int(first[index]), int(last[index]))
        if start < end:
            found.setdefault(context[start:end], CharSpan(start, end, float(score[index])))
        if len(found) == n_best:
            break
    return list(found.values())
